#ifndef TOOLS_LAB_ENGINES_RANKS_RANK_ORDERS_H_
#define TOOLS_LAB_ENGINES_RANKS_RANK_ORDERS_H_

// Messages between the parent of a group engine and its ranks, sent as bytes
// through pipes. A rank first sends RankHello, then obeys orders until the end
// of its input.

#include <cstddef>
#include <cstdint>

#include "kernels/driver/prototypes.h"
#include "shim/fineserve_kv.h"

namespace stock_engine {

struct RankHello {
  fs_kv_rank rank;
  fs_kv_geometry geometry;
  fineserve::driver::CUipcMemHandle shared;  // of its weights (--weights)
};

enum class Ask : uint32_t {
  kFill = 1,  // queue a fill of the slab with `word`; has no answer
  kCheck,     // after all before it: does the slab hold `word` everywhere?
  kSync,      // answer when the device has done all before it
  kPeers,     // RankPeers follow; has no answer
  kWrite,     // `word` into the shared buffers; has no answer
  kVerify,  // after all before it: do they and the weights hold what they must?
  kLeave,   // its view is suspended; `wrong` if it cannot be
  kComeBack  // `wrong` if its memory is not back yet
};

// The group's first rank, and the shared buffer that the receiver of this
// message opens.
struct RankPeers {
  fs_kv_rank first;
  fineserve::driver::CUipcMemHandle shared;
};

struct Order {
  Ask ask;
  uint32_t slab;  // view index
  uint32_t word;
};

struct Answer {
  uint32_t slab;
  uint32_t wrong;  // 1: another word was found
  uint32_t at;     // its place, in words
  uint32_t wanted;
  uint32_t got;
};

// Reads or writes all the bytes. Returns false at the end of the pipe.
bool ReadAll(int fd, void* to, size_t bytes);
bool WriteAll(int fd, const void* from, size_t bytes);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_RANK_ORDERS_H_
