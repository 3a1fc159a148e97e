#include "shim/map/view_mapping.h"

#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "kernels/driver/rounding.h"
#include "shim/host/relaxed_capture.h"
#include "shim/host/warn.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;
using driver::EntryPoints;

constexpr uint64_t kSlack = uint64_t{2} << 20;

}  // namespace

bool ViewMapping::Open(const ViewShape& shape) {
  const size_t tensors = shape.tensors() * sizeof(Tensor);
  const size_t granules = shape.used_granules() * sizeof(*granules_);
  const size_t indices = size_t{shape.slabs} + 1;
  const size_t memory = indices * sizeof(*memory_);
  block_bytes_ = tensors + granules + memory + indices;
  void* block = mmap(nullptr, block_bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return false;
  auto* at = static_cast<char*>(block);
  tensors_ = reinterpret_cast<Tensor*>(at);
  granules_ = reinterpret_cast<CUmemGenericAllocationHandle*>(at + tensors);
  memory_ = reinterpret_cast<uint64_t*>(at + tensors + granules);
  backing_ = reinterpret_cast<Backing*>(at + tensors + granules + memory);
  static_assert(static_cast<int>(Backing::kScratch) == 0, "as mmap leaves it");
  shape_ = shape;
  context_ = nullptr;
  tensor_count_ = 0;
  cleared_planes_ = granules_mapped_ = 0;
  calls_ = 0;
  return true;
}

void ViewMapping::Close() {
  if (tensors_ != nullptr) munmap(tensors_, block_bytes_);
  tensors_ = nullptr;
}

bool ViewMapping::Fits(uint64_t bytes) const {
  return bytes >= shape_.tensor_bytes() &&
         bytes - shape_.tensor_bytes() <= kSlack;
}

CUdeviceptr ViewMapping::Plane(uint32_t p) const {
  return tensors_[p / shape_.planes_per_allocation].base +
         p % shape_.planes_per_allocation * shape_.stride();
}

// Returns the number of bytes after the last index of a plane.
uint64_t ViewMapping::RestBytes(uint32_t p) const {
  const Tensor& tensor = tensors_[p / shape_.planes_per_allocation];
  const bool last = (p + 1) % shape_.planes_per_allocation == 0;
  const uint64_t bytes =
      last ? tensor.base + tensor.reserved_bytes - Plane(p) : shape_.stride();
  return bytes - (uint64_t{shape_.slabs} + 1) * shape_.plane_bytes;
}

MapResult ViewMapping::AddTensor(const EntryPoints& entry, uint64_t bytes,
                                 Redirection* out) {
  const RelaxedCapture relaxed(entry);
  Tensor* const end = tensors_ + shape_.tensors();
  Tensor* const slot = std::find_if(
      tensors_, end, [](const Tensor& tensor) { return tensor.base == 0; });
  if (slot == end || !Fits(bytes)) return {MapOutcome::kWrongSize};
  Tensor tensor = {};
  CUresult result = Reserve(entry, bytes, &tensor);
  if (result != CUDA_SUCCESS) return DriverError(result);
  *slot = tensor;
  result = BackTensor(entry, slot);
  if (result != CUDA_SUCCESS) {
    if (!slot->mapped) {
      Call(entry.cuMemAddressFree, tensor.base, tensor.reserved_bytes);
    }
    *slot = {};
    if (tensor_count_ == 0) scratch_.Release(entry, &calls_);
    return DriverError(result);
  }
  ++tensor_count_;
  out->base = tensor.base;
  out->reserved_bytes = tensor.reserved_bytes;
  out->asked_bytes = bytes;
  out->epoch = shape_.epoch;
  out->context = context_;
  out->is_view = true;
  return {MapOutcome::kMapped};
}

// Maps scratch in all planes of a tensor. After an error the tensor is `mapped`
// only if its mappings could not be undone.
CUresult ViewMapping::BackTensor(const EntryPoints& entry, Tensor* tensor) {
  CUdeviceptr mapped_end = tensor->base;
  CUresult result = CUDA_SUCCESS;
  const auto first =
      static_cast<uint32_t>(tensor - tensors_) * shape_.planes_per_allocation;
  for (uint32_t p = first; p < first + shape_.planes_per_allocation; ++p) {
    result = BackPlane(entry, p, &mapped_end);
    if (result != CUDA_SUCCESS) break;
  }
  if (result == CUDA_SUCCESS) {
    result = Permit(entry, tensor->base, tensor->reserved_bytes);
  }
  const uint64_t mapped = mapped_end - tensor->base;
  tensor->mapped =
      result == CUDA_SUCCESS ||
      (mapped > 0 && Unmap(entry, tensor->base, mapped) != CUDA_SUCCESS);
  return result;
}

void ViewMapping::OpenScratch(const EntryPoints& entry) {
  scratch_.Release(entry, &calls_);
  scratch_.Open(entry, shape_.plane_bytes, shape_.granularity,
                shape_.mode == abi::ViewMode::kView, device_, &calls_);
}

CUresult ViewMapping::MapAgain(const EntryPoints& entry, uint64_t epoch) {
  const RelaxedCapture relaxed(entry);
  shape_.epoch = epoch;
  cleared_planes_ = being_mapped_ = granules_mapped_ = 0;
  const size_t indices = size_t{shape_.slabs} + 1;
  std::fill_n(backing_, indices, Backing::kScratch);
  std::fill_n(memory_, indices, 0);
  OpenScratch(entry);
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < shape_.tensors() && result == CUDA_SUCCESS; ++i) {
    result = BackTensor(entry, &tensors_[i]);
  }
  if (result == CUDA_SUCCESS) return result;
  UnmapAll(entry);
  scratch_.Release(entry, &calls_);
  return result;
}

bool ViewMapping::has_broken() const {
  Backing* const end = backing_ + shape_.slabs + 1;
  return std::find(backing_, end, Backing::kBroken) != end;
}

CUresult ViewMapping::Reserve(const EntryPoints& entry, uint64_t bytes,
                              Tensor* out) {
  driver::CUcontext context = nullptr;
  driver::CUdevice device = 0;
  CUresult result = Call(entry.cuCtxGetCurrent, &context);
  if (result != CUDA_SUCCESS) return result;
  result = Call(entry.cuCtxGetDevice, &device);
  if (result != CUDA_SUCCESS) return result;
  if (tensor_count_ == 0) {
    context_ = context;
    device_ = device;
    OpenScratch(entry);
  } else if (context != context_) {
    return driver::CUDA_ERROR_INVALID_CONTEXT;
  }
  // The last index may extend beyond the requested bytes, by less than a page.
  const uint64_t last_plane =
      (shape_.planes_per_allocation - 1) * shape_.stride();
  const uint64_t indices = (uint64_t{shape_.slabs} + 1) * shape_.plane_bytes;
  out->reserved_bytes =
      RoundUp(std::max(bytes, last_plane + indices), shape_.granularity);
  return Call(entry.cuMemAddressReserve, &out->base, out->reserved_bytes,
              size_t{0}, CUdeviceptr{0}, 0ULL);
}

// Maps a plane's scratch. Index 0 and the rest of the plane keep their scratch.
// The indices between them are mapped separately so that they can be unmapped:
// in one piece in mode view, one by one in the other modes.
CUresult ViewMapping::BackPlane(const EntryPoints& entry, uint32_t p,
                                CUdeviceptr* end) {
  const bool at_once = shape_.mode == abi::ViewMode::kView;
  const uint64_t share = shape_.plane_bytes;
  CUresult result = scratch_.Map(entry, Plane(p), share, end, &calls_);
  const uint32_t pieces = at_once ? 1 : shape_.slabs;
  for (uint32_t i = 0; i < pieces && result == CUDA_SUCCESS; ++i) {
    result = scratch_.Map(entry, *end, share * (shape_.slabs / pieces), end,
                          &calls_);
  }
  if (result != CUDA_SUCCESS) return result;
  return scratch_.Map(entry, *end, RestBytes(p), end, &calls_);
}

CUresult ViewMapping::Permit(const EntryPoints& entry, CUdeviceptr at,
                             uint64_t bytes) {
  return InPieces(at, bytes, [&](CUdeviceptr piece, uint64_t piece_bytes) {
    return PermitAccess(entry, piece, piece_bytes, device_);
  });
}

CUresult ViewMapping::Unmap(const EntryPoints& entry, CUdeviceptr at,
                            uint64_t bytes) {
  return InPieces(at, bytes, entry.cuMemUnmap);
}

// Tries the sizes that a mapping there can have, the largest first. The first
// size that the driver accepts is right, since it refuses a part of a mapping.
template <typename CallOn>
CUresult ViewMapping::InPieces(CUdeviceptr at, uint64_t bytes, CallOn call_on) {
  CUresult result = Call(call_on, at, bytes);
  if (result != CUDA_ERROR_INVALID_VALUE) return result;
  uint64_t sizes[ViewScratch::kSizes + 1] = {shape_.granule_bytes};
  for (int i = 0; i < ViewScratch::kSizes; ++i) {
    sizes[i + 1] = scratch_.mapped_size(i);
  }
  std::sort(std::begin(sizes), std::end(sizes), std::greater<>());
  const CUdeviceptr end = at + bytes;
  while (at < end) {
    uint64_t done = 0;
    for (const uint64_t size : sizes) {
      if (size == 0 || size > end - at || size == bytes) continue;
      result = Call(call_on, at, size);
      if (result == CUDA_SUCCESS) done = size;
      if (result != CUDA_ERROR_INVALID_VALUE) break;
    }
    if (done == 0) return result;
    at += done;
  }
  if (!std::exchange(pieces_said_, true)) {
    Warn(
        "the driver refuses a range in which one handle is mapped many "
        "times, so each mapping takes a call of its own");
  }
  return CUDA_SUCCESS;
}

CUresult ViewMapping::RemoveTensor(const EntryPoints& entry, CUdeviceptr base) {
  const RelaxedCapture relaxed(entry);
  for (uint32_t i = 0; i < shape_.tensors(); ++i) {
    Tensor& tensor = tensors_[i];
    if (tensor.base != base) continue;
    const CUresult result = UnmapTensor(entry, i);
    if (result != CUDA_SUCCESS) return result;
    // Ignores an error: nothing is mapped there, so addresses that cannot be
    // freed are lost to this process only.
    Call(entry.cuMemAddressFree, tensor.base, tensor.reserved_bytes);
    tensor = {};
    if (--tensor_count_ == 0) scratch_.Release(entry, &calls_);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult ViewMapping::UnmapAll(const EntryPoints& entry) {
  const RelaxedCapture relaxed(entry);
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < shape_.tensors(); ++i) {
    if (tensors_[i].base == 0) continue;
    const CUresult one = UnmapTensor(entry, i);
    if (one != CUDA_SUCCESS) result = one;
  }
  return result;
}

CUresult ViewMapping::UnmapTensor(const EntryPoints& entry, uint32_t tensor) {
  if (!tensors_[tensor].mapped) return CUDA_SUCCESS;
  const uint32_t first = tensor * shape_.planes_per_allocation;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t p = first; p < first + shape_.planes_per_allocation; ++p) {
    const CUresult one = UnmapPlane(entry, p);
    if (one != CUDA_SUCCESS) result = one;
  }
  if (result == CUDA_SUCCESS) tensors_[tensor].mapped = false;
  return result;
}

// Makes one call for each run of mapped indices.
CUresult ViewMapping::UnmapPlane(const EntryPoints& entry, uint32_t p) {
  CUresult result = CUDA_SUCCESS;
  CUdeviceptr begin = Plane(p);
  CUdeviceptr end = Place(p, 1);
  const auto flush = [&] {
    if (begin == end) return;
    const CUresult one = Unmap(entry, begin, end - begin);
    if (one != CUDA_SUCCESS) result = one;
  };
  for (uint32_t v = 1; v <= shape_.slabs; ++v) {
    if (backing_[v] == Backing::kBroken) result = driver::CUDA_ERROR_UNKNOWN;
    if (backing_[v] != Backing::kScratch && backing_[v] != Backing::kPool) {
      flush();
      begin = Place(p, v + 1);
    }
    end = Place(p, v + 1);
  }
  end += RestBytes(p);
  flush();
  return result;
}

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

// Maps, with one import, the run of slabs with memory that begins at `v`. `end`
// becomes the first slab after the run, or one that has left the pool since.
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
  // The pool may have withdrawn slabs in the meantime, because none is leased
  // to us.
  bool changed = false;
  for (uint32_t w = run_end; w-- > v;) {
    if (backing_[w] == Backing::kPool) break;
    *end = w;
    changed = changed || memory(w) != memory_[w];
  }
  if (!changed || !LetGoOfPart(entry)) return result;
  return {MapOutcome::kMapped};
}

// Unmaps the granules of a slab that is mapped only in part.
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

// Takes down a half-built view, so that no plane has anything mapped in place
// of slabs.
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
// memory, and passes each to `use(view index, number, handle) → CUresult`,
// which then owns the handle.
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

// Maps a slab in its place. Imports all granules first, so that a failed import
// leaves the place as it was.
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

// Maps the slab in one plane. After an error the place is as it was, or the
// slab is broken.
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
