#ifndef TOOLS_UP_OOM_WATCH_H_
#define TOOLS_UP_OOM_WATCH_H_

#include <cstdint>
#include <string>
#include <utility>

namespace fineserve::fsctl {

// Detects whether the kernel has just killed a process because the machine or a
// cgroup ran out of host memory, since the exit status only says "Killed". The
// kernel counts all such processes of the machine together.
class OomWatch {
 public:
  // A process that is killed this way takes a moment to end, and its parent
  // takes another to notice.
  static constexpr uint64_t kLatelyNs = 3'000'000'000;

  explicit OomWatch(std::string counters = "/proc/vmstat")
      : counters_(std::move(counters)) {}

  // To be called often.
  void Look(uint64_t now_ns);
  bool KilledLately(uint64_t now_ns) const {
    return killed_ns_ != 0 && now_ns - killed_ns_ < kLatelyNs;
  }

 private:
  const std::string counters_;
  bool has_looked_ = false;
  uint64_t kills_ = 0;
  uint64_t killed_ns_ = 0;  // 0: none was seen
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_OOM_WATCH_H_
