#ifndef TOOLS_LAB_DEVICE_CALL_CALL_LOG_H_
#define TOOLS_LAB_DEVICE_CALL_CALL_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "tools/lab/device/call/entry.h"
#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

// Counts calls, and appends one line per call to a file once opened:
//   pid monotonic-ns symbol(0x… 0x…) result
// Each line is one write(2) in append mode, so lines of several processes are
// never mixed. Thread-safe, and safe in a forked child because it takes no
// lock.
class CallLog {
 public:
  // Opens the log for appending to `path`, also in child processes that call
  // cuInit themselves.
  bool Open(const std::string& path);

  void Count(Entry entry) {
    counts_[static_cast<size_t>(entry)].value.fetch_add(
        1, std::memory_order_relaxed);
  }
  uint64_t count(Entry entry) const {
    return counts_[static_cast<size_t>(entry)].value.load(
        std::memory_order_relaxed);
  }

  void Write(Entry entry, std::span<const uint64_t> args, CUresult result) {
    if (fd_.load(std::memory_order_relaxed) >= 0) Line(entry, args, result);
  }

 private:
  // Each counter has its own cache line, so that threads which call different
  // functions do not contend.
  struct alignas(64) Counter {
    std::atomic<uint64_t> value{0};  // relaxed: a statistic
  };

  void Line(Entry entry, std::span<const uint64_t> args, CUresult result);

  std::array<Counter, kEntries> counts_ = {};
  std::atomic<int> fd_{-1};  // set once, never closed
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_CALL_CALL_LOG_H_
