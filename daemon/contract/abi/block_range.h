#ifndef DAEMON_CONTRACT_ABI_BLOCK_RANGE_H_
#define DAEMON_CONTRACT_ABI_BLOCK_RANGE_H_

#include <cstdint>

#include "kernels/driver/rounding.h"

namespace fineserve::abi {

// Block ids [first, end).
struct BlockRange {
  uint64_t first = 0;
  uint64_t end = 0;

  constexpr uint64_t size() const { return end - first; }
};

// Returns the blocks of a slab that this view may use: those wholly within [v ×
// plane_bytes, (v + 1) × plane_bytes) of each plane. Block b begins at b ×
// page_bytes. No other function decides this (design note 0000, Memory).
constexpr BlockRange BlocksOfView(uint64_t view_index, uint64_t plane_bytes,
                                  uint64_t page_bytes) {
  const uint64_t begin = view_index * plane_bytes;
  return {DivideUp(begin, page_bytes), (begin + plane_bytes) / page_bytes};
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_BLOCK_RANGE_H_
