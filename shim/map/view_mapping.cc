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

// Number of bytes after the last index of a plane.
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
// only if what was mapped could not be unmapped.
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

// Index 0 and the rest of the plane keep their scratch; the indices between are
// mapped separately so that they can be unmapped: in one piece in mode view,
// one by one in the others.
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
// that the driver takes is right: it refuses a part of a mapping.
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
    // Nothing is mapped there, so if the addresses cannot be freed only this
    // process loses them.
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

}  // namespace fineserve::shim
