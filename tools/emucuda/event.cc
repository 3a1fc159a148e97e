#include "tools/emucuda/event.h"

#include <time.h>

#include <utility>

namespace fineserve::emucuda {
namespace {

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 +
         static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

void Completion::Finish() {
  const MutexLock lock(mutex_);
  finished_ns_ = MonotonicNs();
  changed_.NotifyAll();
}

void Completion::Wait() {
  const MutexLock lock(mutex_);
  while (finished_ns_ == 0) changed_.Wait(mutex_);
}

bool Completion::finished() { return finished_ns() != 0; }

uint64_t Completion::finished_ns() {
  const MutexLock lock(mutex_);
  return finished_ns_;
}

std::shared_ptr<Completion> Event::Latest() const {
  const MutexLock lock(mutex_);
  return latest_;
}

void Event::Record(std::shared_ptr<Completion> recording) {
  const MutexLock lock(mutex_);
  latest_ = std::move(recording);
}

}  // namespace fineserve::emucuda
