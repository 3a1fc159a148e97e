#ifndef TOOLS_UP_SUPERVISED_ENGINE_H_
#define TOOLS_UP_SUPERVISED_ENGINE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace fineserve::fsctl {

// The life of one engine of `fsctl up`, as a state machine: takes events and
// times, tells what to do. Starts no process itself. Times are CLOCK_MONOTONIC,
// ns.
//
//   down --(is due)--> starting --(serves)--> serving <--(serves)-- silent
//     ^----(ended)--------/                     | |  --(does not)-----^ |
//     ^----(ended)------------------------------+-|---------------------+
//     ^----(ended)-- stopping <--(asked to end)---+ from any that runs
//
// One whose command cannot be run is given up when it ends; it is never due
// again.
class SupervisedEngine {
 public:
  enum class State {
    kDown,
    kStarting,
    kServing,
    kSilent,  // served, and does not answer now
    kStopping,
    kGivenUp
  };

  // An engine that ends is restarted after a pause. The pause doubles up to
  // kLongestPauseNs, so that an engine that cannot start does not keep the
  // machine busy, and is short again once the engine has served for a while.
  static constexpr uint64_t kFirstPauseNs = 1'000'000'000;
  static constexpr uint64_t kLongestPauseNs = 30'000'000'000;
  static constexpr uint64_t kStableNs = 60'000'000'000;

  // Time without an answer after which an engine that has served counts as
  // silent. A busy machine, or a busy engine, misses single checks.
  static constexpr uint64_t kSilentNs = 3'000'000'000;

  // Time that the engine may take to end when asked to.
  static constexpr uint64_t kPatienceNs = 10'000'000'000;

  // True if the engine should be started now, provided that it should run.
  bool IsDue(uint64_t now_ns) const {
    return state_ == State::kDown && now_ns >= due_ns_;
  }
  // Time until the engine is due, s; 0 if it is due, or if there is no pause.
  double PauseS(uint64_t now_ns) const {
    return now_ns >= due_ns_ ? 0 : static_cast<double>(due_ns_ - now_ns) * 1e-9;
  }
  // Time since the engine began to serve, s. REQUIRES: it has served.
  double ServedS(uint64_t now_ns) const {
    return static_cast<double>(now_ns - serving_ns_) * 1e-9;
  }
  void Started(pid_t pid, uint64_t now_ns);
  // Records a health check that began at `asked_ns`. Returns whether it changed
  // the state.
  bool Checked(bool serves, uint64_t asked_ns);
  // True if the engine has been silent for `patience_ns`; 0: never.
  bool Hangs(uint64_t now_ns, uint64_t patience_ns) const {
    return state_ == State::kSilent && patience_ns != 0 &&
           now_ns - silent_ns_ >= patience_ns;
  }
  // Records that the engine hangs and is killed.
  void KilledAsHung(uint64_t now_ns);
  // Records that the engine was asked to end. Does nothing unless it runs.
  void AskedToEnd(uint64_t now_ns);
  // True, once, if the engine was asked to end so long ago that it must be
  // killed.
  bool PatienceEnds(uint64_t now_ns);
  // Call this when the engine is about to end because its command cannot be
  // run.
  void GiveUpUnlessItServed() { gives_up_ = state_ == State::kStarting; }
  // Records that the engine ended. Returns the pause before its restart, ns; 0
  // if it was asked to end.
  uint64_t Ended(uint64_t now_ns);

  State state() const { return state_; }
  bool runs() const { return pid_ != 0; }
  // True if it is to answer /health.
  bool IsChecked() const {
    return state_ == State::kStarting || state_ == State::kServing ||
           state_ == State::kSilent;
  }
  bool was_hung() const { return was_hung_; }  // and was killed for that
  pid_t pid() const { return pid_; }           // 0: none
  uint64_t started_ns() const { return started_ns_; }
  // Time of the first health check that the engine has not answered since it
  // last served; 0 if it answered the last one.
  uint64_t silent_ns() const { return silent_ns_; }
  // Time when the engine ended by itself, or fell silent and was killed for
  // that, without serving for kStableNs since then; after several such ends,
  // the first of these times. 0 if there was none, or if it serves properly.
  uint64_t unwell_ns() const { return unwell_ns_; }

 private:
  State state_ = State::kDown;
  pid_t pid_ = 0;
  uint64_t due_ns_ = 0;
  uint64_t pause_ns_ = kFirstPauseNs;
  uint64_t started_ns_ = 0;
  uint64_t serving_ns_ = 0;  // since then
  uint64_t silent_ns_ = 0;   // since then; 0: its last check was answered
  uint64_t checked_ns_ = 0;  // last
  uint64_t unwell_ns_ = 0;
  bool gives_up_ = false;
  bool was_hung_ = false;
  uint64_t kill_ns_ = 0;  // while it is stopping; UINT64_MAX: it was killed
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_SUPERVISED_ENGINE_H_
