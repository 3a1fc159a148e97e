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
  if (told_ == count_.load(std::memory_order_relaxed) || told_ == kMostTold) {
    return false;
  }
  *what = At(told_).what;
  return true;
}

void UnconfirmedEnds::Told(uint32_t sequence) {
  const MutexLock lock(&mutex_);
  At(told_++).sequence = sequence;
}

bool UnconfirmedEnds::Confirm(uint32_t sequence) {
  const MutexLock lock(&mutex_);
  if (told_ == 0 || At(0).sequence != sequence) return false;
  first_ = (first_ + 1) % kCapacity;
  --told_;
  count_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool UnconfirmedEnds::AwaitsAnswers() {
  const MutexLock lock(&mutex_);
  return told_ > 0;
}

bool UnconfirmedEnds::HasUntold() {
  const MutexLock lock(&mutex_);
  return told_ < count_.load(std::memory_order_relaxed);
}

void UnconfirmedEnds::TellAgain() {
  const MutexLock lock(&mutex_);
  told_ = 0;
}

void UnconfirmedEnds::Clear() {
  const MutexLock lock(&mutex_);
  told_ = 0;
  count_.store(0, std::memory_order_relaxed);
}

}  // namespace fineserve::shim
