#ifndef SHIM_MAP_VIEW_SCRATCH_H_
#define SHIM_MAP_VIEW_SCRATCH_H_

#include <cstdint>

#include "kernels/driver/entry_points.h"

namespace fineserve::shim {

// A little private memory that backs a large address range: the same few
// handles are mapped many times. Engines fill and warm up their KV on it, and
// it backs the null block. Bytes that are written through one address can be
// read through another. Handles are mapped whole, since drivers may refuse to
// map a part of one.
//
//   unit   tiles a slab's share of a plane: its largest divisor that a piece
//          may be
//   run    covers several shares, where many are mapped at once
//   least  covers the driver's granularity, for what remains at a plane's end
//
// A piece has at most 64 MiB and at most 1/32 of the device's free memory
// (heuristics: few calls, and little memory), but never less than the
// granularity. A piece for which there is no room when it is needed becomes
// half as large or less: then more calls map the same range.
//
// Each handle is created when it is first needed. Confined to one thread at a
// time. Trivially destroyed: Release frees the memory.
class ViewScratch {
 public:
  constexpr ViewScratch() = default;

  // `share_bytes` is a multiple of `granularity`. If `runs` is true, many
  // shares are mapped at a time. `device` is the device of the current context.
  // Adds its driver calls to `*calls`.
  void Open(const driver::EntryPoints& entry, uint64_t share_bytes,
            uint64_t granularity, bool runs, driver::CUdevice device,
            uint64_t* calls);

  // Maps scratch over [at, at + bytes), without access; `bytes` is a multiple
  // of the granularity. Sets `*end` to the end of the mapped part, even after
  // an error. OUT_OF_MEMORY if there is no room even for the granularity. Adds
  // its driver calls to `*calls`.
  driver::CUresult Map(const driver::EntryPoints& entry, driver::CUdeviceptr at,
                       uint64_t bytes, driver::CUdeviceptr* end,
                       uint64_t* calls);

  // Zeroes the memory in the current context, and waits until that is done.
  driver::CUresult Zero(const driver::EntryPoints& entry, uint64_t* calls);

  // The sizes in which Map has mapped scratch, from large to small.
  static constexpr int kSizes = 3;
  uint64_t mapped_size(int i) const {
    return pieces_[i].handle != 0 ? pieces_[i].bytes : 0;
  }

  // Releases the handles; mappings keep their memory.
  void Release(const driver::EntryPoints& entry, uint64_t* calls);

 private:
  enum { kRun, kUnit, kLeast, kPieces };  // from large to small
  static_assert(kPieces == kSizes);
  struct Piece {
    uint64_t bytes;  // kNoPiece: there is none
    driver::CUmemGenericAllocationHandle handle;
  };
  static constexpr uint64_t kNoPiece = UINT64_MAX;

  void LimitPieces(uint64_t most_bytes);
  driver::CUresult Create(const driver::EntryPoints& entry, Piece* piece,
                          uint64_t* calls);
  driver::CUresult ZeroPiece(const driver::EntryPoints& entry,
                             const Piece& piece, driver::CUdeviceptr at);

  driver::CUdevice device_ = 0;
  uint64_t share_bytes_ = 0;
  bool runs_ = false;
  Piece pieces_[kPieces] = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_MAP_VIEW_SCRATCH_H_
