#include "shim/map/view_mapping.h"

#include <sys/mman.h>

#include <algorithm>

namespace fineserve::shim {
namespace {

using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;
using driver::EntryPoints;

constexpr uint64_t kSlack = uint64_t{2} << 20;

constexpr uint64_t RoundUp(uint64_t n, uint64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

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
  block_ = block;
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
  if (block_ != nullptr) munmap(block_, block_bytes_);
  block_ = nullptr;
}

bool ViewMapping::Fits(uint64_t bytes) const {
  return bytes >= shape_.tensor_bytes() &&
         bytes - shape_.tensor_bytes() <= kSlack;
}

CUdeviceptr ViewMapping::Plane(uint32_t p) const {
  return tensors_[p / shape_.planes_per_allocation].base +
         p % shape_.planes_per_allocation * shape_.stride();
}

// What follows the last index of a plane.
uint64_t ViewMapping::RestBytes(uint32_t p) const {
  const Tensor& tensor = tensors_[p / shape_.planes_per_allocation];
  const bool last = (p + 1) % shape_.planes_per_allocation == 0;
  const uint64_t bytes =
      last ? tensor.base + tensor.reserved_bytes - Plane(p) : shape_.stride();
  return bytes - (uint64_t{shape_.slabs} + 1) * shape_.plane_bytes;
}

MapResult ViewMapping::AddTensor(const EntryPoints& entry, uint64_t bytes,
                                 Redirection* out) {
  Tensor* const end = tensors_ + shape_.tensors();
  Tensor* const slot = std::find_if(
      tensors_, end, [](const Tensor& tensor) { return tensor.base == 0; });
  if (slot == end || !Fits(bytes)) return {MapOutcome::kWrongSize};
  Tensor tensor = {};
  CUresult result = Reserve(entry, bytes, &tensor);
  if (result != CUDA_SUCCESS) return DriverError(result);
  *slot = tensor;
  CUdeviceptr mapped_end = tensor.base;
  const auto first =
      static_cast<uint32_t>(slot - tensors_) * shape_.planes_per_allocation;
  for (uint32_t p = first; p < first + shape_.planes_per_allocation; ++p) {
    result = BackPlane(entry, p, &mapped_end);
    if (result != CUDA_SUCCESS) break;
  }
  if (result == CUDA_SUCCESS) {
    result = Permit(entry, tensor.base, tensor.reserved_bytes);
  }
  if (result != CUDA_SUCCESS) {
    const uint64_t mapped = mapped_end - tensor.base;
    slot->base = 0;
    if (mapped == 0 ||
        Call(entry.cuMemUnmap, tensor.base, mapped) == CUDA_SUCCESS) {
      Call(entry.cuMemAddressFree, tensor.base, tensor.reserved_bytes);
    }
    return DriverError(result);
  }
  slot->mapped = true;
  ++tensor_count_;
  out->base = tensor.base;
  out->reserved_bytes = tensor.reserved_bytes;
  out->asked_bytes = bytes;
  out->epoch = shape_.epoch;
  out->context = context_;
  out->is_view = true;
  return {MapOutcome::kMapped};
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
    scratch_.Release(entry, &calls_);
    scratch_.Open(shape_.plane_bytes, shape_.granularity,
                  shape_.mode == abi::ViewMode::kView, device);
  } else if (context != context_) {
    return driver::CUDA_ERROR_INVALID_CONTEXT;
  }
  // The last index may reach past what was asked for, by less than a page.
  const uint64_t last_plane =
      (shape_.planes_per_allocation - 1) * shape_.stride();
  const uint64_t indices = (uint64_t{shape_.slabs} + 1) * shape_.plane_bytes;
  out->reserved_bytes =
      RoundUp(std::max(bytes, last_plane + indices), shape_.granularity);
  return Call(entry.cuMemAddressReserve, &out->base, out->reserved_bytes,
              size_t{0}, CUdeviceptr{0}, 0ULL);
}

// Index 0 and the rest stay; what lies between can be unmapped apart from
// them, in other modes than view also index by index.
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
  const driver::CUmemAccessDesc desc = {
      {driver::CU_MEM_LOCATION_TYPE_DEVICE, device_},
      driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return Call(entry.cuMemSetAccess, at, bytes, &desc, size_t{1});
}

CUresult ViewMapping::RemoveTensor(const EntryPoints& entry, CUdeviceptr base) {
  for (uint32_t i = 0; i < shape_.tensors(); ++i) {
    Tensor& tensor = tensors_[i];
    if (tensor.base != base) continue;
    const CUresult result = UnmapTensor(entry, i);
    if (result != CUDA_SUCCESS) return result;
    // Nothing is mapped there any more: addresses that cannot be freed are
    // lost to this process only.
    Call(entry.cuMemAddressFree, tensor.base, tensor.reserved_bytes);
    tensor = {};
    if (--tensor_count_ == 0) scratch_.Release(entry, &calls_);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult ViewMapping::UnmapAll(const EntryPoints& entry) {
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

// One call for each run of what is mapped.
CUresult ViewMapping::UnmapPlane(const EntryPoints& entry, uint32_t p) {
  CUresult result = CUDA_SUCCESS;
  CUdeviceptr begin = Plane(p);
  CUdeviceptr end = Place(p, 1);
  const auto flush = [&] {
    if (begin == end) return;
    const CUresult one = Call(entry.cuMemUnmap, begin, end - begin);
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
    const CUresult result =
        Call(entry.cuMemUnmap, Place(cleared_planes_, 1), bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  std::fill_n(backing_ + 1, shape_.slabs, Backing::kNothing);
  return CUDA_SUCCESS;
}

MapResult ViewMapping::FillPlaces(const EntryPoints& entry, DaemonLink* link,
                                  const MemoryOf& memory) {
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
  // Run by run of slabs that have memory.
  for (uint32_t v = 1; v <= shape_.slabs;) {
    uint32_t end = v;
    for (; end <= shape_.slabs; ++end) {
      memory_[end] = memory(end);
      if (memory_[end] == 0) break;
    }
    if (end > v) {
      const MapResult result = Import(entry, link, v, end, use);
      if (result.outcome != MapOutcome::kMapped) return result;
    }
    v = end + 1;
  }
  const CUresult rest = FillAbsences(entry);
  return rest == CUDA_SUCCESS ? MapResult{MapOutcome::kMapped}
                              : DriverError(rest);
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

// Takes a half-built view down: nothing in place of slabs, in any plane.
void ViewMapping::Demolish(const EntryPoints& entry) {
  const uint64_t share = shape_.plane_bytes;
  bool gone = true;
  for (uint32_t p = cleared_planes_; p < shape_.planes; ++p) {
    gone = Call(entry.cuMemUnmap, Place(p, 1), shape_.slabs * share) ==
               CUDA_SUCCESS &&
           gone;
  }
  for (uint32_t v = 1; v <= shape_.slabs; ++v) {
    if (backing_[v] == Backing::kBroken) continue;
    bool out = gone;
    if (cleared_planes_ == shape_.planes) {
      uint32_t granules = shape_.used_granules();
      if (backing_[v] == Backing::kNothing) {
        granules = v == being_mapped_ ? granules_mapped_ : 0;
      }
      for (uint32_t k = 0; k < granules; k += shape_.granules_per_plane) {
        const uint64_t bytes =
            std::min(granules - k, shape_.granules_per_plane) *
            shape_.granule_bytes;
        const CUdeviceptr at = Place(k / shape_.granules_per_plane, v);
        out = Call(entry.cuMemUnmap, at, bytes) == CUDA_SUCCESS && out;
      }
    }
    backing_[v] = out ? Backing::kNothing : Backing::kBroken;
  }
  granules_mapped_ = 0;
}

// Imports the used granules of the slabs at [first_view, end_view), which have
// memory, and gives each to `use(view index, number, handle) → CUresult`. A
// handle is released afterwards: a mapping keeps the memory.
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
  Call(entry.cuMemUnmap, at, bytes);
  return released;
}

// All granules are imported first: what fails there fails while the place
// still has what it had.
MapResult ViewMapping::SwapIn(const EntryPoints& entry, DaemonLink* link,
                              uint32_t v, uint64_t memory) {
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

// On an error the place has what it had, or the slab is broken.
CUresult ViewMapping::PutSlab(const EntryPoints& entry, uint32_t p,
                              uint32_t v) {
  const CUdeviceptr at = Place(p, v);
  const bool scratch = backing_[v] == Backing::kScratch;
  CUresult result = CUDA_SUCCESS;
  if (scratch) result = Call(entry.cuMemUnmap, at, shape_.plane_bytes);
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
      mapped == 0 || Call(entry.cuMemUnmap, at, mapped * bytes) == CUDA_SUCCESS;
  const bool restored =
      unmapped && (!scratch || PutScratch(entry, p, v) == CUDA_SUCCESS);
  if (!restored) backing_[v] = Backing::kBroken;
  return result;
}

// Takes a slab out of its first planes again.
bool ViewMapping::Restore(const EntryPoints& entry, uint32_t planes,
                          uint32_t v) {
  bool restored = backing_[v] != Backing::kBroken;
  for (uint32_t p = 0; p < planes; ++p) {
    const bool unmapped =
        Call(entry.cuMemUnmap, Place(p, v), shape_.plane_bytes) == CUDA_SUCCESS;
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
  const bool nothing = shape_.mode == abi::ViewMode::kStrict;
  for (uint32_t p = 0; p < shape_.planes; ++p) {
    CUresult result = Call(entry.cuMemUnmap, Place(p, v), shape_.plane_bytes);
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
