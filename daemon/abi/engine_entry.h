#ifndef DAEMON_ABI_ENGINE_ENTRY_H_
#define DAEMON_ABI_ENGINE_ENTRY_H_

#include <string.h>

#include "daemon/abi/slab_table.h"

namespace fineserve::abi {

// Copies an entry's record between two equal, even sequences; without any
// allocation. False if it kept changing: a writer needs well under a
// microsecond, but if it died, the sequence stays odd.
inline bool CopyRecord(const EngineEntry& entry, EngineRecord* to) {
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    // Acquire: pairs with the writer's release of the even sequence.
    const uint32_t before = entry.sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    for (size_t w = 0; w < sizeof(EngineRecord) / 8; ++w) {
      // Acquire: a word of a later write brings its odd sequence along, so the
      // load below sees that it changed.
      const uint64_t word = entry.record[w].load(std::memory_order_acquire);
      memcpy(reinterpret_cast<char*>(to) + w * 8, &word, sizeof(word));
    }
    if (entry.sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_ENGINE_ENTRY_H_
