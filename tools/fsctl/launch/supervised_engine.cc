#include "tools/fsctl/launch/supervised_engine.h"

#include <algorithm>

namespace fineserve::fsctl {

void SupervisedEngine::Started(pid_t pid, uint64_t now_ns) {
  state_ = State::kStarting;
  pid_ = pid;
  started_ns_ = now_ns;
}

bool SupervisedEngine::Checked(bool serves, uint64_t now_ns) {
  if (state_ == State::kDown) return false;
  const State now = serves ? State::kServing : State::kStarting;
  if (now == state_) return false;
  state_ = now;
  if (serves) serving_ns_ = now_ns;
  return true;
}

uint64_t SupervisedEngine::Ended(uint64_t now_ns) {
  const bool was_stable =
      state_ == State::kServing && now_ns - serving_ns_ >= kStableNs;
  if (was_stable) pause_ns_ = kFirstPauseNs;
  const uint64_t pause = pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  state_ = State::kDown;
  pid_ = 0;
  due_ns_ = now_ns + pause;
  return pause;
}

}  // namespace fineserve::fsctl
