#include "tools/lab/engines/kv_memory.h"

#include "kernels/driver/rounding.h"

namespace stock_engine {
namespace {

using namespace fineserve::driver;  // NOLINT: this file calls CUDA

CUmemLocation OnDevice(int device) {
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

bool CanRdma(int device) {
  int can = 0;
  STOCK_ENGINE_CALL(cuDeviceGetAttribute, &can,
                    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                    device);
  return can != 0;
}

bool IsMapped(KvAllocator how) {
  return how == KvAllocator::kVirtual || how == KvAllocator::kRdma;
}

CUmemAllocationProp Properties(int device, KvAllocator how) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = OnDevice(device);
  prop.allocFlags.gpuDirectRDMACapable =
      how == KvAllocator::kRdma && CanRdma(device);
  return prop;
}

size_t RoundToGranularity(const CUmemAllocationProp& prop, size_t bytes) {
  size_t granularity;
  STOCK_ENGINE_CALL(cuMemGetAllocationGranularity, &granularity, &prop,
                    CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  return fineserve::RoundUp(bytes, granularity);
}

CUresult CreateAndMap(KvAllocator how, int device, size_t bytes,
                      KvAllocation* out) {
  const CUmemAllocationProp prop = Properties(device, how);
  out->bytes = RoundToGranularity(prop, bytes);
  const CUresult created =
      fineserve::driver::cuMemCreate(&out->handle, out->bytes, &prop, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return created;
  CheckCuda(created, "cuMemCreate");
  STOCK_ENGINE_CALL(cuMemAddressReserve, &out->address, out->bytes, 0, 0, 0);
  STOCK_ENGINE_CALL(cuMemMap, out->address, out->bytes, 0, out->handle, 0);
  const CUmemAccessDesc access = {OnDevice(device),
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  STOCK_ENGINE_CALL(cuMemSetAccess, out->address, out->bytes, &access, 1);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult AllocateKv(KvAllocator how, int device, size_t bytes,
                    KvAllocation* out) {
  *out = {};
  if (IsMapped(how)) return CreateAndMap(how, device, bytes, out);
  out->bytes = bytes;
  const bool async = how == KvAllocator::kAsync;
  const CUresult result = async ? cuMemAllocAsync(&out->address, bytes, nullptr)
                                : cuMemAlloc_v2(&out->address, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return result;
  CheckCuda(result, async ? "cuMemAllocAsync" : "cuMemAlloc_v2");
  return CUDA_SUCCESS;
}

void FreeKv(KvAllocator how, const KvAllocation& allocation) {
  switch (how) {
    case KvAllocator::kPlain:
      STOCK_ENGINE_CALL(cuMemFree_v2, allocation.address);
      return;
    case KvAllocator::kAsync:
      STOCK_ENGINE_CALL(cuMemFreeAsync, allocation.address, nullptr);
      return;
    case KvAllocator::kVirtual:
    case KvAllocator::kRdma:
      STOCK_ENGINE_CALL(cuMemUnmap, allocation.address, allocation.bytes);
      STOCK_ENGINE_CALL(cuMemRelease, allocation.handle);
      STOCK_ENGINE_CALL(cuMemAddressFree, allocation.address, allocation.bytes);
      return;
  }
}

}  // namespace stock_engine
