#include "shim/kv_whole.h"

#include "kernels/driver/descriptor.h"

namespace fineserve::shim {
namespace {

using driver::CUcontext;
using driver::CUDA_ERROR_OPERATING_SYSTEM;
using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUmemAccessDesc;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;

MapResult DriverError(CUresult result) {
  return {MapOutcome::kDriverError, result};
}

MapOutcome OutcomeOf(Exchange exchange) {
  switch (exchange) {
    case Exchange::kOk:
      return MapOutcome::kMapped;
    case Exchange::kExhausted:
      return MapOutcome::kExhausted;
    case Exchange::kRefused:
      return MapOutcome::kRefused;
    case Exchange::kLost:
      break;
  }
  return MapOutcome::kNoDaemon;
}

}  // namespace

MapResult KvWhole::Map(uint64_t bytes, Redirection* out) {
  Lease lease;
  const Exchange granted = link_->Take(bytes, &lease);
  if (granted != Exchange::kOk) return {OutcomeOf(granted)};
  Redirection range;
  range.asked_bytes = bytes;
  CUresult result = Reserve(lease, &range);
  if (result != CUDA_SUCCESS) {
    link_->Return(lease.id, lease.epoch);
    return DriverError(result);
  }
  uint32_t mapped = 0;
  const MapResult granules = MapGranules(lease, range.base, &mapped);
  if (granules.outcome != MapOutcome::kMapped) {
    return RollBack(lease, range, mapped, granules);
  }
  result = Permit(range);
  if (result != CUDA_SUCCESS) {
    return RollBack(lease, range, mapped, DriverError(result));
  }
  *out = range;
  return {MapOutcome::kMapped};
}

CUresult KvWhole::Reserve(const Lease& lease, Redirection* out) {
  out->lease = lease.id;
  out->epoch = lease.epoch;
  out->reserved_bytes = lease.bytes();
  const CUresult result = entry_.cuCtxGetCurrent(&out->context);
  if (result != CUDA_SUCCESS) return result;
  return entry_.cuMemAddressReserve(&out->base, lease.bytes(), 0, 0, 0);
}

MapResult KvWhole::MapGranules(const Lease& lease, CUdeviceptr base,
                               uint32_t* mapped) {
  abi::Received batch;
  while (*mapped < lease.granule_count) {
    const Exchange got = link_->Granules(lease, *mapped, &batch);
    // Not one descriptor was free in this process: no fault of the daemon's.
    if (got == Exchange::kRefused) {
      return DriverError(CUDA_ERROR_OPERATING_SYSTEM);
    }
    if (got != Exchange::kOk) return {OutcomeOf(got)};
    for (uint32_t i = 0; i < batch.descriptor_count(); ++i) {
      // Closed after the import: 8,192 of them would exhaust the host's limit.
      const driver::Descriptor granule(batch.TakeDescriptor(i));
      const CUdeviceptr at = base + *mapped * lease.granule_bytes;
      const CUresult result = MapOne(granule.get(), at, lease.granule_bytes);
      if (result != CUDA_SUCCESS) return DriverError(result);
      ++*mapped;
    }
  }
  return {MapOutcome::kMapped};
}

CUresult KvWhole::MapOne(int descriptor, CUdeviceptr address, uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  // The driver takes the descriptor's number in place of a pointer.
  void* shareable = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor));
  CUresult result = entry_.cuMemImportFromShareableHandle(
      &handle, shareable, driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  result = entry_.cuMemMap(address, bytes, 0, handle, 0);
  const CUresult released = entry_.cuMemRelease(handle);
  if (result != CUDA_SUCCESS || released == CUDA_SUCCESS) return result;
  // Mapped, but to be counted as not: the caller unmaps only what it counted.
  entry_.cuMemUnmap(address, bytes);
  return released;
}

CUresult KvWhole::Permit(const Redirection& range) {
  CUdevice device = 0;
  const CUresult result = entry_.cuCtxGetDevice(&device);
  if (result != CUDA_SUCCESS) return result;
  const CUmemAccessDesc desc = {{driver::CU_MEM_LOCATION_TYPE_DEVICE, device},
                                driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return entry_.cuMemSetAccess(range.base, range.reserved_bytes, &desc, 1);
}

MapResult KvWhole::RollBack(const Lease& lease, const Redirection& range,
                            uint32_t mapped, MapResult why) {
  if (mapped > 0) {
    const uint64_t bytes = mapped * lease.granule_bytes;
    if (entry_.cuMemUnmap(range.base, bytes) != CUDA_SUCCESS) return why;
  }
  entry_.cuMemAddressFree(range.base, range.reserved_bytes);
  link_->Return(lease.id, lease.epoch);
  return why;
}

// In the context that the range was mapped in: the freeing thread may have
// another one or none.
CUresult KvWhole::Synchronize(CUcontext context) {
  CUresult result = entry_.cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return result;
  result = entry_.cuCtxSynchronize();
  CUcontext popped = nullptr;
  entry_.cuCtxPopCurrent_v2(&popped);
  return result;
}

CUresult KvWhole::Unmap(const Redirection& range) {
  const CUresult result = Synchronize(range.context);
  return result != CUDA_SUCCESS ? result : Discard(range);
}

CUresult KvWhole::Discard(const Redirection& range) {
  CUresult result = entry_.cuMemUnmap(range.base, range.reserved_bytes);
  if (result != CUDA_SUCCESS) return result;
  // Nothing is mapped there any more: an address range that cannot be freed is
  // lost to this process only.
  entry_.cuMemAddressFree(range.base, range.reserved_bytes);
  link_->Return(range.lease, range.epoch);
  return CUDA_SUCCESS;
}

}  // namespace fineserve::shim
