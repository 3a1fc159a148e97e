#ifndef TOOLS_LAB_ENGINES_RANKS_LEASE_TIMES_H_
#define TOOLS_LAB_ENGINES_RANKS_LEASE_TIMES_H_

#include <cstdint>
#include <string>

namespace stock_engine {

// Wants one more slab and gives it back, `count` times. Returns how long each
// lease took from fs_kv_want to FS_KV_LEASED, in microseconds: "12.3 14.0 …".
// The engine must have its own block pool and nothing else to do.
std::string TimeLeases(uint32_t count);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_LEASE_TIMES_H_
