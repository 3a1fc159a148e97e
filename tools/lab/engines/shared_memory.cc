#include "tools/lab/engines/shared_memory.h"

#include <cinttypes>
#include <cstdio>
#include <sstream>

namespace stock_engine {
namespace {

using fineserve::driver::CUipcMemHandle;

// True if `result` is an error, which it then prints.
bool Failed(const char* function, CUresult result) {
  if (result == 0) return false;
  printf("error %s %d\n", function, static_cast<int>(result));
  return true;
}

void Share(CUdeviceptr address) {
  CUipcMemHandle handle;
  if (Failed("cuIpcGetMemHandle",
             fineserve::driver::cuIpcGetMemHandle(&handle, address))) {
    return;
  }
  printf("ok handle=");
  for (const char byte : handle.reserved) {
    printf("%02x", static_cast<unsigned char>(byte));
  }
  puts("");
}

void Open(const std::string& hex) {
  CUipcMemHandle handle = {};
  for (size_t i = 0; i < sizeof(handle.reserved) && 2 * i < hex.size(); ++i) {
    unsigned byte = 0;
    sscanf(hex.c_str() + 2 * i, "%2x", &byte);
    handle.reserved[i] = static_cast<char>(byte);
  }
  CUdeviceptr address = 0;
  if (Failed("cuIpcOpenMemHandle",
             fineserve::driver::cuIpcOpenMemHandle_v2(
                 &address, handle,
                 fineserve::driver::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))) {
    return;
  }
  printf("ok opened=%" PRIu64 "\n", static_cast<uint64_t>(address));
}

void Close(CUdeviceptr address) {
  if (!Failed("cuIpcCloseMemHandle",
              fineserve::driver::cuIpcCloseMemHandle(address))) {
    puts("ok closed");
  }
}

void AskRange(CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (!Failed(
          "cuMemGetAddressRange",
          fineserve::driver::cuMemGetAddressRange_v2(&base, &bytes, address))) {
    printf("ok base=%" PRIu64 " bytes=%zu\n", static_cast<uint64_t>(base),
           bytes);
  }
}

void Poke(CUdeviceptr address, uint32_t value) {
  if (!Failed("cuMemcpyHtoD", fineserve::driver::cuMemcpyHtoD_v2(
                                  address, &value, sizeof(value)))) {
    puts("ok poked");
  }
}

void Peek(CUdeviceptr address) {
  uint32_t value = 0;
  if (!Failed("cuMemcpyDtoH", fineserve::driver::cuMemcpyDtoH_v2(
                                  &value, address, sizeof(value)))) {
    printf("ok value=%u\n", value);
  }
}

void Drop(CUdeviceptr address) {
  if (!Failed("cuMemFree", fineserve::driver::cuMemFree_v2(address))) {
    puts("ok dropped");
  }
}

void UseDevice(int ordinal) {
  fineserve::driver::CUcontext context = nullptr;
  STOCK_ENGINE_CALL(cuDevicePrimaryCtxRetain, &context, ordinal);
  STOCK_ENGINE_CALL(cuCtxSetCurrent, context);
  printf("ok device=%d\n", ordinal);
}

}  // namespace

bool ObeySharing(const std::string& command, const std::string& argument) {
  CUdeviceptr address = 0;
  uint32_t value = 0;
  std::istringstream(argument) >> address >> value;
  if (command == "share") return Share(address), true;
  if (command == "open") return Open(argument), true;
  if (command == "close") return Close(address), true;
  if (command == "range") return AskRange(address), true;
  if (command == "poke") return Poke(address, value), true;
  if (command == "peek") return Peek(address), true;
  if (command == "drop") return Drop(address), true;
  if (command == "device") return UseDevice(static_cast<int>(address)), true;
  return false;
}

}  // namespace stock_engine
