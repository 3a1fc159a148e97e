// Exported functions: two- and three-dimensional copies.

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"

namespace fineserve::driver {

using emucuda::Box;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Entry;
using emucuda::IsPinned;
using emucuda::Logged;
using emucuda::Place;
using emucuda::PlaceOf;
using emucuda::Reachable;
using emucuda::SubmitTo;
using emucuda::Wait;

namespace {

// One side of a copy: the address of its first byte, and the distances in bytes
// from row to row and from slice to slice.
struct Side {
  CUdeviceptr first = 0;
  uint64_t pitch = 0;
  uint64_t slice = 0;
};

// Fills in `side` from the fields of a copy's source or target. Arrays are not
// emulated, so no array handle is valid.
CUresult FindSide(CUmemorytype type, const void* host, CUdeviceptr device,
                  uint64_t x, uint64_t y, uint64_t z, uint64_t pitch,
                  uint64_t slice_rows, Side* side) {
  CUdeviceptr base = 0;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      base = reinterpret_cast<CUdeviceptr>(host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      if (!Reachable(device)) return CUDA_ERROR_INVALID_VALUE;
      [[fallthrough]];
    case CU_MEMORYTYPE_UNIFIED:
      base = device;
      break;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_INVALID_HANDLE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (base == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t slice = pitch * slice_rows;
  *side = {base + z * slice + y * pitch + x, pitch, slice};
  return CUDA_SUCCESS;
}

bool Pageable(const Place& place, uint64_t bytes) {
  return !place.on_device && !IsPinned(place.address, bytes);
}

// If either side is pageable memory, the copy is complete on return, whatever
// `wait` says.
CUresult CopySides(Context& context, const Side& to, const Side& from,
                   uint64_t width, uint64_t height, uint64_t depth,
                   CUstream stream, Wait wait) {
  if (width == 0 || height == 0 || depth == 0) return CUDA_SUCCESS;
  if (height > 1 && (to.pitch < width || from.pitch < width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Box box = {PlaceOf(to.first),
                   PlaceOf(from.first),
                   to.pitch,
                   from.pitch,
                   to.slice,
                   from.slice,
                   width,
                   height,
                   depth};
  if (Pageable(box.to, width) || Pageable(box.from, width)) wait = Wait::kYes;
  const auto& space = emucuda::Addresses();
  return SubmitTo(context, stream, wait,
                  [&space, device = context.device(), box] {
                    return emucuda::CopyBox(space, device, box);
                  });
}

CUresult Copy2D(Context& context, const CUDA_MEMCPY2D* copy, CUstream stream,
                Wait wait) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Side to, from;
  CUresult result =
      FindSide(copy->srcMemoryType, copy->srcHost, copy->srcDevice,
               copy->srcXInBytes, copy->srcY, 0, copy->srcPitch, 0, &from);
  if (result == CUDA_SUCCESS) {
    result = FindSide(copy->dstMemoryType, copy->dstHost, copy->dstDevice,
                      copy->dstXInBytes, copy->dstY, 0, copy->dstPitch, 0, &to);
  }
  if (result != CUDA_SUCCESS) return result;
  return CopySides(context, to, from, copy->WidthInBytes, copy->Height, 1,
                   stream, wait);
}

// A template, because CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have fields of the
// same names.
template <typename Copy>
CUresult Copy3D(Context& context, const Copy* copy, CUstream stream,
                Wait wait) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Side to, from;
  CUresult result = FindSide(
      copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes,
      copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight, &from);
  if (result == CUDA_SUCCESS) {
    result = FindSide(copy->dstMemoryType, copy->dstHost, copy->dstDevice,
                      copy->dstXInBytes, copy->dstY, copy->dstZ, copy->dstPitch,
                      copy->dstHeight, &to);
  }
  if (result != CUDA_SUCCESS) return result;
  return CopySides(context, to, from, copy->WidthInBytes, copy->Height,
                   copy->Depth, stream, wait);
}

CUresult FindOperand(const CUmemcpy3DOperand& operand, const CUextent3D& extent,
                     Side* side) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
      operand.op.ptr.ptr == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto& pointer = operand.op.ptr;
  const uint64_t pitch =
      pointer.rowLength != 0 ? pointer.rowLength : extent.width;
  const uint64_t rows =
      pointer.layerHeight != 0 ? pointer.layerHeight : extent.height;
  *side = {pointer.ptr, pitch, pitch * rows};
  return CUDA_SUCCESS;
}

CUresult CopyOne(Context& context, const CUDA_MEMCPY3D_BATCH_OP& copy,
                 CUstream stream) {
  Side to, from;
  CUresult result = FindOperand(copy.src, copy.extent, &from);
  if (result == CUDA_SUCCESS) result = FindOperand(copy.dst, copy.extent, &to);
  if (result != CUDA_SUCCESS) return result;
  return CopySides(context, to, from, copy.extent.width, copy.extent.height,
                   copy.extent.depth, stream, Wait::kNo);
}

CUresult CopyBatch(Context& context, const CUDA_MEMCPY3D_BATCH_OP* copies,
                   size_t count, size_t* failed, unsigned long long flags,
                   CUstream stream) {
  if (failed != nullptr) *failed = SIZE_MAX;
  if (copies == nullptr || count == 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = CopyOne(context, copies[i], stream);
    if (result == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  return CallInContext(Entry::cuMemcpy2D_v2, Logged(copy),
                       [&](Context& context) {
                         return Copy2D(context, copy, nullptr, Wait::kYes);
                       });
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return CallInContext(Entry::cuMemcpy2DUnaligned_v2, Logged(copy),
                       [&](Context& context) {
                         return Copy2D(context, copy, nullptr, Wait::kYes);
                       });
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return CallInContext(Entry::cuMemcpy2DAsync_v2, Logged(copy, stream),
                       [&](Context& context) {
                         return Copy2D(context, copy, stream, Wait::kNo);
                       });
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  return CallInContext(Entry::cuMemcpy3D_v2, Logged(copy),
                       [&](Context& context) {
                         return Copy3D(context, copy, nullptr, Wait::kYes);
                       });
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return CallInContext(Entry::cuMemcpy3DAsync_v2, Logged(copy, stream),
                       [&](Context& context) {
                         return Copy3D(context, copy, stream, Wait::kNo);
                       });
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
  return CallInContext(Entry::cuMemcpy3DPeer, Logged(copy),
                       [&](Context& context) {
                         return Copy3D(context, copy, nullptr, Wait::kYes);
                       });
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return CallInContext(Entry::cuMemcpy3DPeerAsync, Logged(copy, stream),
                       [&](Context& context) {
                         return Copy3D(context, copy, stream, Wait::kNo);
                       });
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                              size_t* failed, unsigned long long flags,
                              CUstream stream) {
  return CallInContext(Entry::cuMemcpy3DBatchAsync, Logged(count, stream),
                       [&](Context& context) {
                         return CopyBatch(context, copies, count, failed, flags,
                                          stream);
                       });
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                 unsigned long long flags, CUstream stream) {
  return CallInContext(Entry::cuMemcpy3DBatchAsync_v2, Logged(count, stream),
                       [&](Context& context) {
                         return CopyBatch(context, copies, count, nullptr,
                                          flags, stream);
                       });
}

}  // namespace fineserve::driver
