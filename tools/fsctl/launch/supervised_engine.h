#ifndef TOOLS_FSCTL_LAUNCH_SUPERVISED_ENGINE_H_
#define TOOLS_FSCTL_LAUNCH_SUPERVISED_ENGINE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace fineserve::fsctl {

// One engine of `fsctl up`, as a state machine: events and times in, what to do
// out. Starts no process itself. Times are CLOCK_MONOTONIC, ns.
//
//   down --(its time has come)--> starting --(serves)--> serving
//     ^------------- ended ----------/---------------------/
class SupervisedEngine {
 public:
  enum class State { kDown, kStarting, kServing };

  // An engine that ends is started again after a pause that doubles up to the
  // longest, and is short again once it has served for a while: one that cannot
  // start must not keep the machine busy, one that died once is wanted back.
  static constexpr uint64_t kFirstPauseNs = 1'000'000'000;
  static constexpr uint64_t kLongestPauseNs = 30'000'000'000;
  static constexpr uint64_t kStableNs = 60'000'000'000;

  // Whether it is to be started now.
  bool IsDue(uint64_t now_ns) const {
    return state_ == State::kDown && now_ns >= due_ns_;
  }
  void Started(pid_t pid, uint64_t now_ns);
  // What its health check said. Whether that is news.
  bool Checked(bool serves, uint64_t now_ns);
  // It has ended; how long until it is started again.
  uint64_t Ended(uint64_t now_ns);

  State state() const { return state_; }
  pid_t pid() const { return pid_; }  // 0: none
  uint64_t started_ns() const { return started_ns_; }

 private:
  State state_ = State::kDown;
  pid_t pid_ = 0;
  uint64_t due_ns_ = 0;
  uint64_t pause_ns_ = kFirstPauseNs;
  uint64_t started_ns_ = 0;
  uint64_t serving_ns_ = 0;  // since then
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LAUNCH_SUPERVISED_ENGINE_H_
