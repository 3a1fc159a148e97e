#ifndef TOOLS_LAB_DEVICE_LINGER_LINGER_JOURNAL_H_
#define TOOLS_LAB_DEVICE_LINGER_LINGER_JOURNAL_H_

// The work that a client's device has yet to do, in a memfd that the client's
// linger helper also maps. The client writes the journal; the helper reads it
// once the client is dead. If the client is killed, at whatever instruction,
// each entry is complete or unused.

#include <atomic>
#include <cstdint>

namespace fineserve::emucuda {

inline constexpr uint32_t kLingerEntries = 4096;

// One write to a contiguous piece of a device's memory file.
struct LingerEntry {
  // 0 if unused, else the position in the order of submission. Stored with
  // release, after the other fields are written; pairs with the acquire in the
  // helper.
  std::atomic<uint64_t> sequence;
  uint32_t device;
  uint32_t width;  // bytes of the pattern; 0 = a copy from `from`
  uint64_t to;     // `to` and `from` are file offsets
  uint64_t from;
  uint64_t bytes;
  uint32_t value;
  uint32_t zero;
};
static_assert(sizeof(LingerEntry) == 48);

struct LingerJournal {
  // Relaxed: settings.
  std::atomic<uint32_t> linger_ms;
  std::atomic<uint32_t> teardown_us_per_gib;
  uint32_t client;  // its pid; set before the helper starts
  uint32_t zero[13];
  LingerEntry entries[kLingerEntries];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The helper's descriptors: the read end of a pipe that the client holds open,
// the journal, the driver's lock (the pipe again if processes do not share a
// lock), then each device's memory file and control file. The locks on the
// device files outlive the client.
inline constexpr int kLingerPipe = 3;
inline constexpr int kLingerJournal = 4;
inline constexpr int kLingerLock = 5;
inline constexpr int kLingerFirstDevice = 6;

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_LINGER_LINGER_JOURNAL_H_
