#include "shim/link/unconfirmed_ends.h"

namespace fineserve::shim {

void UnconfirmedEnds::Add(What what) {
  const MutexLock lock(&mutex_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  if (count == kCapacity) return;  // the daemon learns of it when we exit
  At(count) = {what, 0};
  count_.store(count + 1, std::memory_order_relaxed);
}

bool UnconfirmedEnds::Next(What* what) {
  const MutexLock lock(&mutex_);
  if (sent_ == count_.load(std::memory_order_relaxed) || sent_ == kMostSent) {
    return false;
  }
  *what = At(sent_).what;
  return true;
}

void UnconfirmedEnds::Sent(uint32_t sequence) {
  const MutexLock lock(&mutex_);
  At(sent_++).sequence = sequence;
}

bool UnconfirmedEnds::Confirm(uint32_t sequence) {
  const MutexLock lock(&mutex_);
  if (sent_ == 0 || At(0).sequence != sequence) return false;
  first_ = (first_ + 1) % kCapacity;
  --sent_;
  count_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool UnconfirmedEnds::AwaitsAnswers() {
  const MutexLock lock(&mutex_);
  return sent_ > 0;
}

bool UnconfirmedEnds::HasUnsent() {
  const MutexLock lock(&mutex_);
  return sent_ < count_.load(std::memory_order_relaxed);
}

void UnconfirmedEnds::TellAgain() {
  const MutexLock lock(&mutex_);
  sent_ = 0;
}

void UnconfirmedEnds::Clear() {
  const MutexLock lock(&mutex_);
  sent_ = 0;
  count_.store(0, std::memory_order_relaxed);
}

}  // namespace fineserve::shim
