// The part of ViewMapping that exchanges scratch for slabs of the pool.

#include <algorithm>

#include "shim/host/relaxed_capture.h"
#include "shim/map/view_mapping.h"

namespace fineserve::shim {

using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;
using driver::EntryPoints;

MapResult ViewMapping::ActivateWith(const EntryPoints& entry, DaemonLink* link,
                                    const MemoryOf& memory) {
  const RelaxedCapture relaxed(entry);
  CUresult zeroed = Call(entry.cuCtxPushCurrent_v2, context_);
  if (zeroed != CUDA_SUCCESS) return DriverError(zeroed);
  zeroed = scratch_.Zero(entry, &calls_);
  driver::CUcontext popped = nullptr;
  Call(entry.cuCtxPopCurrent_v2, &popped);
  if (zeroed != CUDA_SUCCESS) return DriverError(zeroed);
  if (shape_.mode == abi::ViewMode::kGuarded) return {MapOutcome::kMapped};

  MapResult result = {MapOutcome::kMapped};
  const CUresult cleared = ClearPlaces(entry);
  if (cleared != CUDA_SUCCESS) {
    result = DriverError(cleared);
  } else if (shape_.mode == abi::ViewMode::kView) {
    result = FillPlaces(entry, link, memory);
  }
  if (result.outcome != MapOutcome::kMapped) Demolish(entry);
  return result;
}

CUresult ViewMapping::ClearPlaces(const EntryPoints& entry) {
  const uint64_t bytes = shape_.slabs * shape_.plane_bytes;
  for (cleared_planes_ = 0; cleared_planes_ < shape_.planes;
       ++cleared_planes_) {
    const CUresult result = Unmap(entry, Place(cleared_planes_, 1), bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  std::fill_n(backing_ + 1, shape_.slabs, Backing::kNothing);
  return CUDA_SUCCESS;
}

MapResult ViewMapping::FillPlaces(const EntryPoints& entry, DaemonLink* link,
                                  const MemoryOf& memory) {
  for (uint32_t v = 1; v <= shape_.slabs;) {
    memory_[v] = memory(v);
    if (memory_[v] == 0) {
      ++v;
      continue;
    }
    const MapResult result = FillRun(entry, link, memory, v, &v);
    if (result.outcome != MapOutcome::kMapped) return result;
  }
  const CUresult rest = FillAbsences(entry);
  return rest == CUDA_SUCCESS ? MapResult{MapOutcome::kMapped}
                              : DriverError(rest);
}

// Maps the run of slabs with memory that begins at `v`, by one import. `end`:
// the first slab behind it, or one that has left the pool in the meantime.
MapResult ViewMapping::FillRun(const EntryPoints& entry, DaemonLink* link,
                               const MemoryOf& memory, uint32_t v,
                               uint32_t* end) {
  const auto use = [&](uint32_t v, uint32_t k, CUmemGenericAllocationHandle g) {
    const CUresult result = MapGranule(entry, v, k, g);
    if (result != CUDA_SUCCESS) return result;
    being_mapped_ = v;
    granules_mapped_ = k + 1;
    if (granules_mapped_ == shape_.used_granules()) {
      backing_[v] = Backing::kPool;
      granules_mapped_ = 0;
    }
    return CUDA_SUCCESS;
  };
  uint32_t run_end = v + 1;
  for (; run_end <= shape_.slabs; ++run_end) {
    memory_[run_end] = memory(run_end);
    if (memory_[run_end] == 0) break;
  }
  *end = run_end;
  const MapResult result = Import(entry, link, v, run_end, use);
  if (result.outcome != MapOutcome::kRefused) return result;
  // The pool may have withdrawn slabs since, as none is leased to us.
  bool changed = false;
  for (uint32_t w = run_end; w-- > v;) {
    if (backing_[w] == Backing::kPool) break;
    *end = w;
    changed = changed || memory(w) != memory_[w];
  }
  if (!changed || !LetGoOfPart(entry)) return result;
  return {MapOutcome::kMapped};
}

// Unmaps what is mapped of a slab that has only a part of its granules.
bool ViewMapping::LetGoOfPart(const EntryPoints& entry) {
  if (granules_mapped_ == 0) return true;
  if (!UnmapGranules(entry, being_mapped_, granules_mapped_)) return false;
  granules_mapped_ = 0;
  return true;
}

bool ViewMapping::UnmapGranules(const EntryPoints& entry, uint32_t v,
                                uint32_t granules) {
  bool out = true;
  for (uint32_t k = 0; k < granules; k += shape_.granules_per_plane) {
    const uint64_t bytes = std::min(granules - k, shape_.granules_per_plane) *
                           shape_.granule_bytes;
    const CUdeviceptr at = Place(k / shape_.granules_per_plane, v);
    out = Unmap(entry, at, bytes) == CUDA_SUCCESS && out;
  }
  return out;
}

CUresult ViewMapping::FillAbsences(const EntryPoints& entry) {
  for (uint32_t v = 1; v <= shape_.slabs; ++v) {
    if (backing_[v] == Backing::kPool) continue;
    for (uint32_t p = 0; p < shape_.planes; ++p) {
      CUdeviceptr end = 0;
      const CUresult result =
          scratch_.Map(entry, Place(p, v), shape_.plane_bytes, &end, &calls_);
      if (result != CUDA_SUCCESS) {
        backing_[v] = Backing::kBroken;
        return result;
      }
    }
    backing_[v] = Backing::kScratch;
  }
  const uint64_t bytes = shape_.slabs * shape_.plane_bytes;
  for (uint32_t p = 0; p < shape_.planes; ++p) {
    const CUresult result = Permit(entry, Place(p, 1), bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// Takes down a half-built view, so that nothing is mapped in place of slabs in
// any plane.
void ViewMapping::Demolish(const EntryPoints& entry) {
  const uint64_t share = shape_.plane_bytes;
  bool gone = true;
  for (uint32_t p = cleared_planes_; p < shape_.planes; ++p) {
    gone =
        Unmap(entry, Place(p, 1), shape_.slabs * share) == CUDA_SUCCESS && gone;
  }
  for (uint32_t v = 1; v <= shape_.slabs; ++v) {
    if (backing_[v] == Backing::kBroken) continue;
    bool out = gone;
    if (cleared_planes_ == shape_.planes) {
      uint32_t granules = shape_.used_granules();
      if (backing_[v] == Backing::kNothing) {
        granules = v == being_mapped_ ? granules_mapped_ : 0;
      }
      out = UnmapGranules(entry, v, granules) && out;
    }
    backing_[v] = out ? Backing::kNothing : Backing::kBroken;
  }
  granules_mapped_ = 0;
}

// Imports the used granules of the slabs at [first_view, end_view), which have
// memory, and gives each to `use(view index, number, handle) → CUresult`, which
// then owns the handle.
template <typename Use>
MapResult ViewMapping::Import(const EntryPoints& entry, DaemonLink* link,
                              uint32_t first_view, uint32_t end_view, Use use) {
  const uint32_t per_slab = shape_.granules_per_slab;
  const uint32_t end = (end_view - 2) * per_slab + shape_.used_granules();
  abi::Received batch;
  for (uint32_t next = (first_view - 1) * per_slab; next < end;) {
    if (next % per_slab >= shape_.used_granules()) {  // tail waste
      next = (next / per_slab + 1) * per_slab;
      continue;
    }
    const Exchange got =
        link->PoolGranules(shape_.epoch, next, end - next, &batch);
    if (got != Exchange::kOk) return {OutcomeOf(got)};
    for (uint32_t i = 0; i < batch.descriptor_count(); ++i, ++next) {
      const driver::Descriptor descriptor(batch.TakeDescriptor(i));
      const uint32_t k = next % per_slab;
      if (k >= shape_.used_granules()) continue;
      CUmemGenericAllocationHandle granule = 0;
      ++calls_;
      CUresult result = ImportGranule(entry, descriptor.get(), &granule);
      if (result != CUDA_SUCCESS) return DriverError(result);
      result = use(next / per_slab + 1, k, granule);
      if (result != CUDA_SUCCESS) return DriverError(result);
    }
  }
  return {MapOutcome::kMapped};
}

CUresult ViewMapping::MapGranule(const EntryPoints& entry, uint32_t v,
                                 uint32_t k,
                                 CUmemGenericAllocationHandle granule) {
  const uint64_t bytes = shape_.granule_bytes;
  const CUdeviceptr at = Place(k / shape_.granules_per_plane, v) +
                         k % shape_.granules_per_plane * bytes;
  const CUresult mapped =
      Call(entry.cuMemMap, at, bytes, size_t{0}, granule, 0ULL);
  const CUresult released = Call(entry.cuMemRelease, granule);
  if (mapped != CUDA_SUCCESS || released == CUDA_SUCCESS) return mapped;
  Unmap(entry, at, bytes);
  return released;
}

// Imports all granules first, so that an import that fails leaves the place as
// it was.
MapResult ViewMapping::SwapIn(const EntryPoints& entry, DaemonLink* link,
                              uint32_t v, uint64_t memory) {
  const RelaxedCapture relaxed(entry);
  uint32_t count = 0;
  const auto keep = [&](uint32_t, uint32_t, CUmemGenericAllocationHandle g) {
    granules_[count++] = g;
    return CUDA_SUCCESS;
  };
  MapResult result = Import(entry, link, v, v + 1, keep);
  uint32_t p = 0;
  if (result.outcome == MapOutcome::kMapped) {
    for (; p < shape_.planes; ++p) {
      const CUresult put = PutSlab(entry, p, v);
      if (put == CUDA_SUCCESS) continue;
      result = DriverError(put);
      break;
    }
  }
  for (uint32_t k = 0; k < count; ++k) Call(entry.cuMemRelease, granules_[k]);
  if (p == shape_.planes) {
    backing_[v] = Backing::kPool;
    memory_[v] = memory;
  } else if (p > 0 && !Restore(entry, p, v)) {
    backing_[v] = Backing::kBroken;
  }
  return result;
}

// After an error the place is as it was, or the slab is broken.
CUresult ViewMapping::PutSlab(const EntryPoints& entry, uint32_t p,
                              uint32_t v) {
  const CUdeviceptr at = Place(p, v);
  const bool scratch = backing_[v] == Backing::kScratch;
  CUresult result = CUDA_SUCCESS;
  if (scratch) result = Unmap(entry, at, shape_.plane_bytes);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t bytes = shape_.granule_bytes;
  uint32_t mapped = 0;
  for (; mapped < shape_.granules_per_plane; ++mapped) {
    result = Call(entry.cuMemMap, at + mapped * bytes, bytes, size_t{0},
                  granules_[p * shape_.granules_per_plane + mapped], 0ULL);
    if (result != CUDA_SUCCESS) break;
  }
  if (result == CUDA_SUCCESS) result = Permit(entry, at, shape_.plane_bytes);
  if (result == CUDA_SUCCESS) return result;
  const bool unmapped =
      mapped == 0 || Unmap(entry, at, mapped * bytes) == CUDA_SUCCESS;
  const bool restored =
      unmapped && (!scratch || PutScratch(entry, p, v) == CUDA_SUCCESS);
  if (!restored) backing_[v] = Backing::kBroken;
  return result;
}

// Undoes PutSlab in the first `planes` planes.
bool ViewMapping::Restore(const EntryPoints& entry, uint32_t planes,
                          uint32_t v) {
  bool restored = backing_[v] != Backing::kBroken;
  for (uint32_t p = 0; p < planes; ++p) {
    const bool unmapped =
        Unmap(entry, Place(p, v), shape_.plane_bytes) == CUDA_SUCCESS;
    restored = unmapped && restored &&
               (backing_[v] == Backing::kNothing ||
                PutScratch(entry, p, v) == CUDA_SUCCESS);
  }
  return restored;
}

CUresult ViewMapping::PutScratch(const EntryPoints& entry, uint32_t p,
                                 uint32_t v) {
  CUdeviceptr end = 0;
  const CUresult result =
      scratch_.Map(entry, Place(p, v), shape_.plane_bytes, &end, &calls_);
  return result != CUDA_SUCCESS
             ? result
             : Permit(entry, Place(p, v), shape_.plane_bytes);
}

CUresult ViewMapping::SwapOut(const EntryPoints& entry, uint32_t v) {
  const RelaxedCapture relaxed(entry);
  const bool nothing = shape_.mode == abi::ViewMode::kStrict;
  for (uint32_t p = 0; p < shape_.planes; ++p) {
    CUresult result = Unmap(entry, Place(p, v), shape_.plane_bytes);
    if (p == 0 && result != CUDA_SUCCESS) return result;  // as it was
    if (result == CUDA_SUCCESS && !nothing) result = PutScratch(entry, p, v);
    if (result != CUDA_SUCCESS) {
      backing_[v] = Backing::kBroken;
      return result;
    }
  }
  backing_[v] = nothing ? Backing::kNothing : Backing::kScratch;
  return CUDA_SUCCESS;
}

}  // namespace fineserve::shim
