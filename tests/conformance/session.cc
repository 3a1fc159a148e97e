#include "tests/conformance/session.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace fineserve::conformance {
namespace {

EntryPoints Load() {
  EntryPoints points;
  void* const library = DriverLibrary();
  if (library == nullptr) return points;
#define CONFORMANCE_LOAD(symbol, name, since, need, args)                 \
  points.symbol =                                                         \
      reinterpret_cast<decltype(points.symbol)>(dlsym(library, #symbol)); \
  EXPECT_TRUE(points.symbol != nullptr || Need::need == Need::kOptional)  \
      << #symbol;
  FINESERVE_DRIVER_ENTRY_POINTS(CONFORMANCE_LOAD)
#undef CONFORMANCE_LOAD
#define CONFORMANCE_LOAD(plain, variant, name, since, args, call) \
  points.plain##_##variant =                                      \
      reinterpret_cast<decltype(points.plain##_##variant)>(       \
          dlsym(library, #plain "_" #variant));
  FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(CONFORMANCE_LOAD)
#undef CONFORMANCE_LOAD
  return points;
}

}  // namespace

bool OnEmulatedDevice() { return getenv("FINESERVE_LIBCUDA") == nullptr; }

bool TestsWhatIsOpen() {
  return OnEmulatedDevice() || getenv("FINESERVE_TEST_OPEN") != nullptr;
}

std::string EmulatedLibrary(const char* name) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path().parent_path() / "lib" / "emucuda" / name;
}

void* DriverLibrary() {
  const std::string path = OnEmulatedDevice() ? EmulatedLibrary("libcuda.so.1")
                                              : getenv("FINESERVE_LIBCUDA");
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

const EntryPoints& Cuda() {
  static const EntryPoints points = Load();
  return points;
}

CUmemAllocationProp DeviceMemoryProperties() {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return prop;
}

CUmemAccessDesc DeviceAccess(CUmemAccess_flags flags) {
  return {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
}

Session::Session() {
  EXPECT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  size_t bytes = 0;
  EXPECT_EQ(Cuda().cuMemGetAllocationGranularity(
                &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  granularity_ = bytes;
}

CUmemGenericAllocationHandle Session::Create(uint64_t bytes) const {
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Cuda().cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
  return handle;
}

CUdeviceptr Session::Reserve(uint64_t bytes) const {
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
  return address;
}

void Session::MapAt(CUdeviceptr address, uint64_t bytes,
                    CUmemGenericAllocationHandle handle) const {
  const CUmemAccessDesc access =
      DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(Cuda().cuMemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemSetAccess(address, bytes, &access, 1), CUDA_SUCCESS);
}

CUdeviceptr Session::NewMapping(uint64_t bytes) const {
  const CUmemGenericAllocationHandle handle = Create(bytes);
  const CUdeviceptr address = Reserve(bytes);
  MapAt(address, bytes, handle);
  EXPECT_EQ(Cuda().cuMemRelease(handle), CUDA_SUCCESS);
  return address;
}

int Session::Export(CUmemGenericAllocationHandle handle) const {
  int fd = -1;
  EXPECT_EQ(Cuda().cuMemExportToShareableHandle(
                &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  return fd;
}

CUmemGenericAllocationHandle Session::Import(int fd) const {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Cuda().cuMemImportFromShareableHandle(
                &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  return handle;
}

void Session::Write(CUdeviceptr address, uint32_t word) const {
  EXPECT_EQ(Cuda().cuMemcpyHtoD_v2(address, &word, sizeof(word)), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
}

uint32_t Session::Read(CUdeviceptr address) const {
  uint32_t word = 0;
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&word, address, sizeof(word)), CUDA_SUCCESS);
  return word;
}

uint64_t Session::FreeBytes() const {
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(Cuda().cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
  return free_bytes;
}

uint64_t Session::TotalBytes() const {
  size_t bytes = 0;
  EXPECT_EQ(Cuda().cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
  return bytes;
}

void HoldContext(Channel& channel) {
  const Session gpu;
  channel.Send(0);
  channel.Receive();
}

CUdeviceptr Allocate(uint64_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  return address;
}

CUstream NewStream(unsigned flags) {
  CUstream stream = nullptr;
  EXPECT_EQ(Cuda().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
  return stream;
}

}  // namespace fineserve::conformance
