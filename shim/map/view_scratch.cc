#include "shim/map/view_scratch.h"

#include "shim/map/granules.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUresult;

constexpr uint64_t kMostBytes = uint64_t{64} << 20;

}  // namespace

void ViewScratch::Open(uint64_t share_bytes, uint64_t granularity, bool runs,
                       driver::CUdevice device) {
  device_ = device;
  const uint64_t granules = share_bytes / granularity;
  uint64_t unit =
      kMostBytes / granularity < granules ? kMostBytes / granularity : granules;
  while (unit > 1 && granules % unit != 0) --unit;
  if (unit == 0) unit = 1;
  pieces_[kLeast] = {granularity, 0};
  pieces_[kUnit] = {unit * granularity, 0};
  pieces_[kRun] = {runs && share_bytes < kMostBytes
                       ? kMostBytes / share_bytes * share_bytes
                       : pieces_[kUnit].bytes,
                   0};
}

CUresult ViewScratch::Map(const driver::EntryPoints& entry, CUdeviceptr at,
                          uint64_t bytes, CUdeviceptr* end, uint64_t* calls) {
  *end = at;
  while (bytes > 0) {
    Piece* piece = &pieces_[kRun];
    while (piece->bytes > bytes && piece != &pieces_[kLeast]) ++piece;
    if (piece->handle == 0) {
      const driver::CUmemAllocationProp prop = PlainMemoryOf(device_);
      ++*calls;
      const CUresult created =
          entry.cuMemCreate(&piece->handle, piece->bytes, &prop, 0);
      if (created != CUDA_SUCCESS) return created;
    }
    ++*calls;
    const CUresult mapped =
        entry.cuMemMap(*end, piece->bytes, 0, piece->handle, 0);
    if (mapped != CUDA_SUCCESS) return mapped;
    *end += piece->bytes;
    bytes -= piece->bytes;
  }
  return CUDA_SUCCESS;
}

// Maps each handle at a temporary address, wherever else it is mapped.
CUresult ViewScratch::Zero(const driver::EntryPoints& entry, uint64_t* calls) {
  for (const Piece& piece : pieces_) {
    if (piece.handle == 0) continue;
    CUdeviceptr at = 0;
    CUresult result = entry.cuMemAddressReserve(&at, piece.bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    result = ZeroPiece(entry, piece, at);
    entry.cuMemAddressFree(at, piece.bytes);
    *calls += 7;
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult ViewScratch::ZeroPiece(const driver::EntryPoints& entry,
                                const Piece& piece, CUdeviceptr at) {
  CUresult result = entry.cuMemMap(at, piece.bytes, 0, piece.handle, 0);
  if (result != CUDA_SUCCESS) return result;
  result = PermitAccess(entry, at, piece.bytes, device_);
  if (result == CUDA_SUCCESS) {
    result = entry.cuMemsetD8_v2(at, 0, piece.bytes);
    const CUresult waited = entry.cuCtxSynchronize();
    if (result == CUDA_SUCCESS) result = waited;
  }
  const CUresult unmapped = entry.cuMemUnmap(at, piece.bytes);
  return result != CUDA_SUCCESS ? result : unmapped;
}

void ViewScratch::Release(const driver::EntryPoints& entry, uint64_t* calls) {
  for (Piece& piece : pieces_) {
    if (piece.handle == 0) continue;
    ++*calls;
    entry.cuMemRelease(piece.handle);
    piece.handle = 0;
  }
}

}  // namespace fineserve::shim
