// The entry points of the null driver that do more than return success.

#include <string.h>

#include <atomic>

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/testdata/null_driver.h"

namespace fineserve::driver {

CUresult Resolve(const char* name, int cuda_version, void** function);

namespace {

constexpr CUdeviceptr kAllocated = 0x7000'0000'0000;
constexpr CUdeviceptr kReserved = 0x5000'0000'0000;

std::atomic<long> g_maps{0};
std::atomic<long> g_unmaps{0};

std::atomic<CUdeviceptr> g_next_reserved{kReserved};
std::atomic<CUmemGenericAllocationHandle> g_next_handle{1};

}  // namespace

// Does not count its calls: a shared counter would cost more than the rest of
// the call.
FINESERVE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t) {
  *address = kAllocated;
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuMemMap(CUdeviceptr, size_t, size_t,
                                   CUmemGenericAllocationHandle,
                                   unsigned long long) {
  ++g_maps;
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuMemUnmap(CUdeviceptr, size_t) {
  ++g_unmaps;
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult
cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                              CUmemAllocationGranularity_flags) {
  *bytes = size_t{2} << 20;
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

FINESERVE_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  memcpy(uuid->bytes, "fineserve-null-0", sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(&g_maps);
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address,
                                              size_t bytes, size_t, CUdeviceptr,
                                              unsigned long long) {
  *address = g_next_reserved.fetch_add(bytes);
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle* handle, void*, CUmemAllocationHandleType) {
  *handle = g_next_handle.fetch_add(1);
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(&g_maps);
  return CUDA_SUCCESS;
}

FINESERVE_EXPORT CUresult cuGetProcAddress(const char* symbol, void** pfn,
                                           int cuda_version, uint64_t) {
  return Resolve(symbol, cuda_version, pfn);
}

FINESERVE_EXPORT CUresult
cuGetProcAddress_v2(const char* symbol, void** pfn, int cuda_version, uint64_t,
                    CUdriverProcAddressQueryResult* status) {
  const CUresult result = Resolve(symbol, cuda_version, pfn);
  if (status != nullptr) {
    *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS
                                     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return result;
}

}  // namespace fineserve::driver

FINESERVE_EXPORT long nulldriver_calls(const char* symbol) {
  using fineserve::driver::g_maps, fineserve::driver::g_unmaps;
  if (strcmp(symbol, "cuMemMap") == 0) return g_maps;
  if (strcmp(symbol, "cuMemUnmap") == 0) return g_unmaps;
  return -1;
}
