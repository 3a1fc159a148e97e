#include "shim/map/view_scratch.h"

#include <algorithm>

#include "shim/map/granules.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUresult;

constexpr uint64_t kMostBytes = uint64_t{64} << 20;
constexpr uint64_t kFreeParts = 32;  // a piece takes one of them at most

}  // namespace

void ViewScratch::Open(const driver::EntryPoints& entry, uint64_t share_bytes,
                       uint64_t granularity, bool runs, driver::CUdevice device,
                       uint64_t* calls) {
  device_ = device;
  share_bytes_ = share_bytes;
  runs_ = runs;
  pieces_[kLeast] = {granularity, 0};
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  ++*calls;
  const CUresult known = entry.cuMemGetInfo_v2(&free_bytes, &total_bytes);
  LimitPieces(known == CUDA_SUCCESS
                  ? std::min<uint64_t>(kMostBytes, free_bytes / kFreeParts)
                  : kMostBytes);
}

// Chooses the sizes of the pieces that have no memory yet.
void ViewScratch::LimitPieces(uint64_t most_bytes) {
  Piece& unit = pieces_[kUnit];
  Piece& run = pieces_[kRun];
  if (unit.handle == 0) {
    const uint64_t granularity = pieces_[kLeast].bytes;
    const uint64_t granules = share_bytes_ / granularity;
    uint64_t count = std::min(most_bytes / granularity, granules);
    while (count > 1 && granules % count != 0) --count;
    unit.bytes = std::max<uint64_t>(count, 1) * granularity;
  }
  if (run.handle == 0) {
    const uint64_t shares = runs_ ? most_bytes / share_bytes_ : 0;
    run.bytes = shares > 1 ? shares * share_bytes_ : kNoPiece;
  }
}

CUresult ViewScratch::Map(const driver::EntryPoints& entry, CUdeviceptr at,
                          uint64_t bytes, CUdeviceptr* end, uint64_t* calls) {
  *end = at;
  while (bytes > 0) {
    Piece* piece = &pieces_[kRun];
    while (piece->bytes > bytes && piece != &pieces_[kLeast]) ++piece;
    if (piece->handle == 0) {
      const uint64_t wanted = piece->bytes;
      const CUresult created = Create(entry, piece, calls);
      if (created == driver::CUDA_ERROR_OUT_OF_MEMORY &&
          wanted > pieces_[kLeast].bytes) {
        LimitPieces(wanted / 2);
        continue;
      }
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

CUresult ViewScratch::Create(const driver::EntryPoints& entry, Piece* piece,
                             uint64_t* calls) {
  const driver::CUmemAllocationProp prop = PlainMemoryOf(device_);
  ++*calls;
  return entry.cuMemCreate(&piece->handle, piece->bytes, &prop, 0);
}

// Zeroes each handle's memory, which it maps at a temporary address, even if
// the handle is mapped elsewhere too.
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
