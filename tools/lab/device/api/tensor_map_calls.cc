// Exported functions: tensor descriptors, which some kernels use for copies.
// The emulated GPU has compute capability 8.0, for which the driver has none.

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"

namespace fineserve::driver {
namespace {

CUresult Refuse(emucuda::Entry entry, const CUtensorMap* map) {
  return emucuda::Call(entry, emucuda::Require::kInit, [&] {
    return map == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  });
}

}  // namespace

CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType /*type*/, uint32_t /*rank*/,
    void* /*address*/, const uint64_t* /*extents*/, const uint64_t* /*strides*/,
    const uint32_t* /*box*/, const uint32_t* /*element_strides*/,
    CUtensorMapInterleave /*interleave*/, CUtensorMapSwizzle /*swizzle*/,
    CUtensorMapL2promotion /*promotion*/, CUtensorMapFloatOOBfill /*fill*/) {
  return Refuse(emucuda::Entry::cuTensorMapEncodeTiled, map);
}

CUresult cuTensorMapEncodeIm2col(
    CUtensorMap* map, CUtensorMapDataType /*type*/, uint32_t /*rank*/,
    void* /*address*/, const uint64_t* /*extents*/, const uint64_t* /*strides*/,
    const int* /*lower*/, const int* /*upper*/, uint32_t /*channels*/,
    uint32_t /*pixels*/, const uint32_t* /*element_strides*/,
    CUtensorMapInterleave /*interleave*/, CUtensorMapSwizzle /*swizzle*/,
    CUtensorMapL2promotion /*promotion*/, CUtensorMapFloatOOBfill /*fill*/) {
  return Refuse(emucuda::Entry::cuTensorMapEncodeIm2col, map);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* /*address*/) {
  return Refuse(emucuda::Entry::cuTensorMapReplaceAddress, map);
}

}  // namespace fineserve::driver
