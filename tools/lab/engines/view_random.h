#ifndef TOOLS_LAB_ENGINES_VIEW_RANDOM_H_
#define TOOLS_LAB_ENGINES_VIEW_RANDOM_H_

#include <cstdint>

#include "tools/lab/engines/view_blocks.h"

namespace stock_engine {

// Serves random requests for `seconds`: allocates, writes, verifies and frees,
// with two steps in flight. The load varies all the time, so that slabs come
// and go. Prints "ok random …", or "error …" with block, slab and plane at the
// first byte that is not this engine's. True if there was no such byte.
bool ServeAtRandom(ViewBlocks* blocks, uint32_t most_blocks, double seconds,
                   uint64_t seed);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_VIEW_RANDOM_H_
