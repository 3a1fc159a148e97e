#include "tools/up/supervised_engine.h"

#include <algorithm>

namespace fineserve::fsctl {

void SupervisedEngine::Started(pid_t pid, uint64_t now_ns) {
  state_ = State::kStarting;
  pid_ = pid;
  started_ns_ = now_ns;
  silent_ns_ = 0;
}

bool SupervisedEngine::Checked(bool serves, uint64_t asked_ns) {
  // After a pause of this process, an engine that was silent before may be
  // well.
  const bool was_away = asked_ns > checked_ns_ + kSilentNs;
  checked_ns_ = asked_ns;
  if (serves) {
    silent_ns_ = 0;
  } else if (silent_ns_ == 0 || was_away) {
    silent_ns_ = asked_ns;
  }
  const bool missed_few = asked_ns - silent_ns_ < kSilentNs;
  if (!serves && state_ == State::kServing && missed_few) return false;
  const bool has_served = state_ != State::kStarting;
  const State now = serves       ? State::kServing
                    : has_served ? State::kSilent
                                 : State::kStarting;
  if (!IsChecked() || now == state_) return false;
  state_ = now;
  if (serves) serving_ns_ = asked_ns;
  return true;
}

void SupervisedEngine::KilledAsHung(uint64_t now_ns) {
  AskedToEnd(now_ns);
  was_hung_ = true;
}

void SupervisedEngine::AskedToEnd(uint64_t now_ns) {
  if (!IsChecked()) return;
  state_ = State::kStopping;
  kill_ns_ = now_ns + kPatienceNs;
}

bool SupervisedEngine::PatienceEnds(uint64_t now_ns) {
  if (state_ != State::kStopping || now_ns < kill_ns_) return false;
  kill_ns_ = UINT64_MAX;
  return true;
}

uint64_t SupervisedEngine::Ended(uint64_t now_ns) {
  const bool was_asked = state_ == State::kStopping && !was_hung_;
  const bool has_served = serving_ns_ != 0 && serving_ns_ >= started_ns_;
  // The engine may have been silent before it ended.
  const uint64_t well_until_ns =
      has_served && silent_ns_ != 0 ? silent_ns_ : now_ns;
  const bool was_stable =
      has_served && well_until_ns - serving_ns_ >= kStableNs;
  if (was_stable) pause_ns_ = kFirstPauseNs;
  if (was_stable || unwell_ns_ == 0) unwell_ns_ = well_until_ns;
  if (was_asked) unwell_ns_ = 0;
  const uint64_t pause = was_asked ? 0 : pause_ns_;
  pause_ns_ =
      was_asked ? kFirstPauseNs : std::min(2 * pause_ns_, kLongestPauseNs);
  state_ = gives_up_ ? State::kGivenUp : State::kDown;
  was_hung_ = false;
  pid_ = 0;
  due_ns_ = now_ns + pause;
  return pause;
}

}  // namespace fineserve::fsctl
