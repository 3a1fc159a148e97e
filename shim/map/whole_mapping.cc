#include "shim/map/whole_mapping.h"

#include "shim/host/relaxed_capture.h"

namespace fineserve::shim {

using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;

MapResult WholeMapping::Map(uint64_t bytes, Redirection* out) {
  const RelaxedCapture relaxed(entry_);
  Lease lease;
  const Exchange granted = link_->LeaseSlabs(bytes, &lease);
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

CUresult WholeMapping::Reserve(const Lease& lease, Redirection* out) {
  out->lease = lease.id;
  out->epoch = lease.epoch;
  out->reserved_bytes = lease.bytes();
  const CUresult result = entry_.cuCtxGetCurrent(&out->context);
  if (result != CUDA_SUCCESS) return result;
  return entry_.cuMemAddressReserve(&out->base, lease.bytes(), 0, 0, 0);
}

// Maps the granules. Releases each handle at once, since the mapping keeps the
// memory.
MapResult WholeMapping::MapGranules(const Lease& lease, CUdeviceptr base,
                                    uint32_t* mapped) {
  const uint64_t bytes = lease.granule_bytes;
  const auto map = [&](CUmemGenericAllocationHandle granule) {
    const CUdeviceptr at = base + *mapped * bytes;
    const CUresult result = entry_.cuMemMap(at, bytes, 0, granule, 0);
    const CUresult released = entry_.cuMemRelease(granule);
    if (result != CUDA_SUCCESS) return result;
    if (released == CUDA_SUCCESS) {
      ++*mapped;
    } else {
      // Unmaps this granule here, since the caller unmaps only the counted
      // ones.
      entry_.cuMemUnmap(at, bytes);
    }
    return released;
  };
  return ImportGranules(entry_, link_, lease, lease.granule_count, map);
}

CUresult WholeMapping::Permit(const Redirection& range) {
  CUdevice device = 0;
  const CUresult result = entry_.cuCtxGetDevice(&device);
  if (result != CUDA_SUCCESS) return result;
  return PermitAccess(entry_, range.base, range.reserved_bytes, device);
}

MapResult WholeMapping::RollBack(const Lease& lease, const Redirection& range,
                                 uint32_t mapped, MapResult why) {
  if (mapped > 0) {
    const uint64_t bytes = mapped * lease.granule_bytes;
    if (entry_.cuMemUnmap(range.base, bytes) != CUDA_SUCCESS) return why;
  }
  entry_.cuMemAddressFree(range.base, range.reserved_bytes);
  link_->Return(lease.id, lease.epoch);
  return why;
}

CUresult WholeMapping::Unmap(const Redirection& range) {
  // Waits in the context in which the range was mapped: the thread that frees
  // it may have another current context, or none.
  const CUresult result = Synchronize(entry_, range.context);
  return result != CUDA_SUCCESS ? result : Discard(range);
}

CUresult WholeMapping::Discard(const Redirection& range) {
  const RelaxedCapture relaxed(entry_);
  CUresult result = entry_.cuMemUnmap(range.base, range.reserved_bytes);
  if (result != CUDA_SUCCESS) return result;
  // Ignores an error: nothing is mapped there, so addresses that cannot be
  // freed are lost to this process only.
  entry_.cuMemAddressFree(range.base, range.reserved_bytes);
  link_->Return(range.lease, range.epoch);
  return CUDA_SUCCESS;
}

}  // namespace fineserve::shim
