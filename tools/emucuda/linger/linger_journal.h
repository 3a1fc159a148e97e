#ifndef TOOLS_EMUCUDA_LINGER_LINGER_JOURNAL_H_
#define TOOLS_EMUCUDA_LINGER_LINGER_JOURNAL_H_

// What a client's device has still to do, in a memfd that the client's linger
// helper maps too. The client writes; the helper reads once the client is dead.
// A client killed at any instruction leaves whole entries or unused ones.

#include <atomic>
#include <cstdint>

namespace fineserve::emucuda {

inline constexpr uint32_t kLingerEntries = 4096;

// One write to a contiguous piece of a device's memory file.
struct LingerEntry {
  // 0 = unused, else the order of submission. Release when the other fields are
  // written; pairs with the acquire in the helper.
  std::atomic<uint64_t> sequence;
  uint32_t device;
  uint32_t width;  // bytes of the pattern; 0 = a copy from `from`
  uint64_t to;     // file offsets, both
  uint64_t from;
  uint64_t bytes;
  uint32_t value;
  uint32_t zero;
};
static_assert(sizeof(LingerEntry) == 48);

struct LingerJournal {
  std::atomic<uint32_t> linger_ms;  // relaxed: a setting
  uint32_t zero[15];
  LingerEntry entries[kLingerEntries];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Descriptors of the helper: the read end of a pipe that the client holds open,
// the journal, then each device's memory file and control file. It needs the
// latter only for the locks on them, which outlive the client that way.
inline constexpr int kLingerPipe = 3;
inline constexpr int kLingerJournal = 4;
inline constexpr int kLingerFirstDevice = 5;

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_LINGER_LINGER_JOURNAL_H_
