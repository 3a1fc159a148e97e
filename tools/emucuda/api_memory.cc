// Exported functions: legacy allocation and memory information.

#include <memory>

#include "tools/emucuda/call.h"
#include "tools/emucuda/driver.h"
#include "tools/emucuda/prototypes.h"

namespace fineserve::driver {

using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Driver;
using emucuda::Entry;

namespace {

constexpr uint64_t kPitchAlignment = 512;

CUresult Allocate(Context& context, CUdeviceptr* address, uint64_t bytes) {
  Driver& driver = Driver::Get();
  return driver.heap().Allocate(context, driver.memory(context.device()), bytes,
                                address);
}

CUresult AllocatePitch(Context& context, CUdeviceptr* address, size_t* pitch,
                       size_t width_bytes, size_t rows) {
  *pitch = (width_bytes + kPitchAlignment - 1) & ~(kPitchAlignment - 1);
  uint64_t bytes;
  if (*pitch < width_bytes || __builtin_mul_overflow(*pitch, rows, &bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return Allocate(context, address, bytes);
}

CUresult AddressRange(CUdeviceptr address, CUdeviceptr* base, size_t* bytes) {
  Driver& driver = Driver::Get();
  uint64_t found_bytes;
  CUdeviceptr found;
  if (!driver.heap().Find(address, &found, &found_bytes)) {
    std::shared_ptr<const emucuda::MemoryObject> object;
    const CUresult result =
        driver.space().GetMapping(address, &found, &found_bytes, &object);
    // A legacy chunk outside its live allocations is nobody's.
    if (result != CUDA_SUCCESS || object->handle == 0) {
      return CUDA_ERROR_NOT_FOUND;
    }
  }
  if (base != nullptr) *base = found;
  if (bytes != nullptr) *bytes = found_bytes;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return CallInContext(
      Entry::cuMemAlloc_v2,
      [&](Context& context) {
        if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return Allocate(context, address, bytes);
      },
      bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch,
                            size_t width_bytes, size_t rows,
                            unsigned int element_bytes) {
  return CallInContext(
      Entry::cuMemAllocPitch_v2,
      [&](Context& context) {
        if (address == nullptr || pitch == nullptr ||
            (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        return AllocatePitch(context, address, pitch, width_bytes, rows);
      },
      width_bytes, rows);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return CallInContext(
      Entry::cuMemFree_v2,
      [&](Context& context) {
        if (address == 0) return CUDA_SUCCESS;
        if (const CUresult result = context.Synchronize()) return result;
        return Driver::Get().heap().Free(address);
      },
      address);
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  return CallInContext(Entry::cuMemGetInfo_v2, [&](Context& context) {
    if (free_bytes == nullptr || total_bytes == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto& memory = Driver::Get().memory(context.device());
    *total_bytes = memory.TotalBytes();
    *free_bytes = *total_bytes - memory.UsedBytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes,
                                 CUdeviceptr address) {
  return CallInContext(
      Entry::cuMemGetAddressRange_v2,
      [&](Context&) { return AddressRange(address, base, bytes); }, address);
}

CUresult cuMemAllocHost_v2(void** host, size_t bytes) {
  return CallInContext(
      Entry::cuMemAllocHost_v2,
      [&](Context&) {
        if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return Driver::Get().pinned().Allocate(bytes, host);
      },
      bytes);
}

CUresult cuMemHostAlloc(void** host, size_t bytes, unsigned int flags) {
  return CallInContext(
      Entry::cuMemHostAlloc,
      [&](Context&) {
        if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return Driver::Get().pinned().Allocate(bytes, host);
      },
      bytes, flags);
}

CUresult cuMemFreeHost(void* host) {
  return CallInContext(
      Entry::cuMemFreeHost,
      [&](Context& context) {
        if (const CUresult result = context.Synchronize()) return result;
        return Driver::Get().pinned().Free(host);
      },
      host);
}

}  // namespace fineserve::driver
