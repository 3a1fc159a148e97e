#include "shim/redirect/virtual_memory.h"

#include <stdlib.h>

#include "shim/host/pushed_context.h"
#include "shim/host/relaxed_capture.h"
#include "shim/redirect/decision_records.h"

namespace fineserve::shim {
namespace {

using driver::CUcontext;
using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUmemAllocationProp;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;
using driver::EntryPoints;

// True for plain device memory that can at most be exported as descriptors, as
// slabs can. NCCL also creates host memory with this call.
bool IsPlainDeviceMemory(const CUmemAllocationProp& prop) {
  constexpr unsigned kExportable =
      driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop.type == driver::CU_MEM_ALLOCATION_TYPE_PINNED &&
         prop.location.type == driver::CU_MEM_LOCATION_TYPE_DEVICE &&
         (prop.requestedHandleTypes & ~kExportable) == 0 &&
         prop.allocFlags.compressionType == 0 && prop.allocFlags.usage == 0;
}

// True if slabs suit this size: handles are mapped by whole granules and leased
// by whole slabs. A small handle would leave most of its slab unused; the pool
// would soon be exhausted, and the program would be refused memory that the
// driver has.
bool FitsSlabs(uint64_t bytes, const SlabGeometry& slab) {
  if (slab.slab_bytes == 0 || bytes % slab.granule_bytes != 0) return false;
  const uint64_t slabs =
      bytes / slab.slab_bytes + (bytes % slab.slab_bytes != 0);
  return bytes / slabs >= slab.slab_bytes / 2;
}

// True if the pool's granules serve these flags. Granules are made for network
// cards if the device supports that and its (virtual) machine does not refuse
// it (driver_handles.cc); an imported handle shows neither. If the machine
// refuses, a program that requests such memory gets it from the pool, and its
// registration fails.
bool ServesFlags(const EntryPoints& entry, const CUmemAllocationProp& prop) {
  int capable = 0;
  return prop.allocFlags.gpuDirectRDMACapable == 0 ||
         (entry.cuDeviceGetAttribute(
              &capable,
              driver::
                  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
              prop.location.id) == CUDA_SUCCESS &&
          capable != 0);
}

// Waits for the work that may use a mapping. If the mapping was made without a
// context, it may have been used in the caller's context and in the device's
// primary one.
CUresult AwaitWork(const EntryPoints& entry, const Redirection& mapping) {
  CUcontext current = mapping.context;
  if (current != nullptr) return Synchronize(entry, current);
  const PrimaryContext primary(entry, mapping.device);
  if (primary.get() != nullptr) {
    const CUresult result = Synchronize(entry, primary.get());
    if (result != CUDA_SUCCESS) return result;
  }
  entry.cuCtxGetCurrent(&current);
  return current == nullptr ? CUDA_SUCCESS : Synchronize(entry, current);
}

}  // namespace

void VirtualMemory::Ended::Add(const VirtualAllocation& a) {
  ++count;
  bytes += a.bytes;
  lease = a.lease.id;
}

MapResult VirtualMemory::Create(const EntryPoints& entry, uint64_t bytes,
                                const CUmemAllocationProp& prop,
                                Redirection* out) {
  if (!IsPlainDeviceMemory(prop) || !ServesFlags(entry, prop)) {
    return {MapOutcome::kWrongKind};
  }
  if (!FitsSlabs(bytes, link_->geometry())) return {MapOutcome::kWrongSize};
  const RelaxedCapture relaxed(entry);
  VirtualAllocation a;
  a.bytes = bytes;
  a.prop = prop;
  a.references = 1;
  const Exchange granted = link_->LeaseSlabs(bytes, &a.lease);
  if (granted != Exchange::kOk) return {OutcomeOf(granted)};
  MapResult result = Import(entry, &a);
  if (result.outcome == MapOutcome::kMapped && !handles_.Insert(a)) {
    result = {MapOutcome::kTableFull};
  }
  if (result.outcome != MapOutcome::kMapped) {
    Drop(entry, a);
    return result;
  }
  out->base = a.handle;
  out->asked_bytes = bytes;
  out->lease = a.lease.id;
  return result;
}

MapResult VirtualMemory::Import(const EntryPoints& entry,
                                VirtualAllocation* a) {
  const auto wanted = static_cast<uint32_t>(a->bytes / a->lease.granule_bytes);
  a->granules = static_cast<CUmemGenericAllocationHandle*>(
      calloc(wanted, sizeof(*a->granules)));
  if (a->granules == nullptr) return DriverError(CUDA_ERROR_OUT_OF_MEMORY);
  const auto keep = [a](CUmemGenericAllocationHandle granule) {
    a->granules[a->granule_count++] = granule;
    return CUDA_SUCCESS;
  };
  const MapResult result = ImportGranules(entry, link_, a->lease, wanted, keep);
  a->handle = a->granules[0];
  return result;
}

CUresult VirtualMemory::Map(const EntryPoints& entry, CUdeviceptr address,
                            uint64_t bytes, uint64_t offset,
                            CUmemGenericAllocationHandle handle,
                            unsigned long long flags,
                            const Original& original) {
  VirtualAllocation a;
  if (!handles_.Pin(handle, &a)) return original(entry);
  // Answers like the driver.
  CUresult result =
      offset != 0 ? driver::CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  if (offset == 0 && bytes > 0 && bytes <= a.bytes &&
      bytes % a.lease.granule_bytes == 0) {
    result = MapGranules(entry, a, address, bytes, flags);
  }
  if (result == CUDA_SUCCESS) {
    Redirection mapping;
    mapping.base = address;
    mapping.reserved_bytes = mapping.asked_bytes = bytes;
    mapping.lease = a.lease.id;
    mapping.handle = handle;
    mapping.device = a.prop.location.id;
    entry.cuCtxGetCurrent(&mapping.context);
    if (mappings_->Insert(mapping)) return CUDA_SUCCESS;
    entry.cuMemUnmap(address, bytes);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  Ended ended;  // the program still holds the handle
  Unpin(entry, handle, false, &ended);
  return result;
}

CUresult VirtualMemory::MapGranules(const EntryPoints& entry,
                                    const VirtualAllocation& a,
                                    CUdeviceptr address, uint64_t bytes,
                                    unsigned long long flags) {
  const uint64_t step = a.lease.granule_bytes;
  for (uint64_t at = 0; at < bytes; at += step) {
    const CUresult result =
        entry.cuMemMap(address + at, step, 0, a.granules[at / step], flags);
    if (result == CUDA_SUCCESS) continue;
    if (at > 0) entry.cuMemUnmap(address, at);
    return result;
  }
  return CUDA_SUCCESS;
}

// Like the driver, unmaps any number of mappings, but only whole ones. Kernels
// in flight could still use them, so it waits first, as the driver's own free
// does. If the wait fails, the leases are never returned.
CUresult VirtualMemory::Unmap(const EntryPoints& entry, CUdeviceptr address,
                              uint64_t bytes, const Original& original) {
  const CUdeviceptr end = address + bytes;
  Redirection mapping;
  bool waited = true;
  for (CUdeviceptr at = address;
       mappings_->FirstOverlap(at, end - at, &mapping);
       at = mapping.base + mapping.reserved_bytes) {
    const CUdeviceptr mapping_end = mapping.base + mapping.reserved_bytes;
    if (mapping.base < address || mapping_end > end) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    waited = AwaitWork(entry, mapping) == CUDA_SUCCESS && waited;
    if (mapping_end == end) break;
  }
  const CUresult result = original(entry);
  if (result != CUDA_SUCCESS) return result;
  Ended ended;
  while (mappings_->FirstOverlap(address, bytes, &mapping) &&
         mappings_->Take(mapping.base, &mapping) == RangeTable::Found::kBase) {
    Unpin(entry, mapping.handle, !waited, &ended);
  }
  RecordEnd(abi::Hook::kMemUnmap, ended);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Release(const EntryPoints& entry,
                                CUmemGenericAllocationHandle handle,
                                const Original& original) {
  VirtualAllocation known, last;
  if (!handles_.Find(handle, &known)) return original(entry);
  if (!handles_.Release(handle, &last)) return CUDA_SUCCESS;
  Ended ended;
  ended.Add(last);
  Drop(entry, last);
  RecordEnd(abi::Hook::kMemRelease, ended);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Retain(const EntryPoints& entry,
                               CUmemGenericAllocationHandle* out,
                               CUdeviceptr address, const Original& original) {
  Redirection range;
  // Memory from cuMemAlloc has no handle.
  if (out == nullptr || ranges_->Find(address, &range)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!mappings_->Find(address, &range) || !handles_.Retain(range.handle)) {
    return original(entry);
  }
  *out = range.handle;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Properties(const EntryPoints& entry,
                                   CUmemAllocationProp* out,
                                   CUmemGenericAllocationHandle handle,
                                   const Original& original) {
  VirtualAllocation a;
  if (out == nullptr || !handles_.Find(handle, &a)) return original(entry);
  *out = a.prop;
  return CUDA_SUCCESS;
}

void VirtualMemory::RecordEnd(abi::Hook hook, const Ended& ended) {
  if (ended.count == 0) return;
  Redirection range;
  range.asked_bytes = ended.bytes;
  range.lease = ended.lease;
  scoreboard_->CountReleased(ended.bytes);
  RecordFree(hook, range, abi::Verdict::kReleased, CUDA_SUCCESS, scoreboard_);
}

void VirtualMemory::Unpin(const EntryPoints& entry,
                          CUmemGenericAllocationHandle handle, bool keep_lease,
                          Ended* ended) {
  VirtualAllocation last;
  if (!handles_.Unpin(handle, keep_lease, &last)) return;
  ended->Add(last);
  Drop(entry, last);
}

// Releases the granules and then the lease. If the driver fails to release a
// granule's handle, we still hold it, so the lease is kept.
void VirtualMemory::Drop(const EntryPoints& entry, const VirtualAllocation& a) {
  bool released = !a.keep_lease;
  for (uint32_t i = 0; i < a.granule_count; ++i) {
    released = entry.cuMemRelease(a.granules[i]) == CUDA_SUCCESS && released;
  }
  free(a.granules);
  if (released) link_->Return(a.lease.id, a.lease.epoch);
}

}  // namespace fineserve::shim
