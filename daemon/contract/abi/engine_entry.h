#ifndef DAEMON_CONTRACT_ABI_ENGINE_ENTRY_H_
#define DAEMON_CONTRACT_ABI_ENGINE_ENTRY_H_

#include <string.h>

#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/slab_table.h"

namespace fineserve::abi {

inline constexpr size_t kRecordWords = sizeof(EngineRecord) / 8;

// Copies the present record, without any allocation. Returns false if it kept
// changing, although a writer needs well under a microsecond.
inline bool CopyRecord(const EngineEntry& entry, EngineRecord* to) {
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    // Acquire: pairs with the release of the sequence in StoreRecord.
    const uint32_t before = entry.sequence.load(std::memory_order_acquire);
    for (size_t w = 0; w < kRecordWords; ++w) {
      // Acquire: after a word of a later record, the load below sees the
      // changed sequence.
      const uint64_t word =
          entry.records[before % 2][w].load(std::memory_order_acquire);
      memcpy(reinterpret_cast<char*>(to) + w * 8, &word, sizeof(word));
    }
    // While the sequence is unchanged, the writer works only on the other copy.
    if (entry.sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

// Makes `record` the present one. If the caller dies halfway, the former record
// stays in effect. One writer at a time.
inline void StoreRecord(const EngineRecord& record, EngineEntry* entry) {
  uint64_t words[kRecordWords];
  memcpy(words, &record, sizeof(record));
  const uint32_t next = entry->sequence.load(std::memory_order_relaxed) + 1;
  for (size_t w = 0; w < kRecordWords; ++w) {
    // Release: orders the word after the previous sequence.
    entry->records[next % 2][w].store(words[w], std::memory_order_release);
  }
  // Release: the words are in place. Pairs with CopyRecord's first acquire.
  entry->sequence.store(next, std::memory_order_release);
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_ENGINE_ENTRY_H_
