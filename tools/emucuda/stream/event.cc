#include "tools/emucuda/stream/event.h"

#include <chrono>
#include <utility>

namespace fineserve::emucuda {
namespace {

uint64_t MonotonicNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

}  // namespace

void Completion::Finish() {
  if (shared_ != nullptr) return shared_->Finish(recording_);
  const MutexLock lock(mutex_);
  finished_ns_ = MonotonicNs();
  changed_.NotifyAll();
}

void Completion::Wait() {
  if (shared_ != nullptr) return shared_->Wait(recording_);
  const MutexLock lock(mutex_);
  while (finished_ns_ == 0) changed_.Wait(mutex_);
}

bool Completion::finished() {
  if (shared_ != nullptr) return shared_->Finished(recording_);
  return finished_ns() != 0;
}

uint64_t Completion::finished_ns() {
  const MutexLock lock(mutex_);
  return finished_ns_;
}

std::shared_ptr<Completion> Event::Latest() const {
  if (shared_ != nullptr) {
    const uint64_t latest = shared_->Latest();
    if (latest == 0) return nullptr;
    return std::make_shared<Completion>(shared_, latest);
  }
  const MutexLock lock(mutex_);
  return latest_;
}

std::shared_ptr<Completion> Event::NewRecording() const {
  if (shared_ == nullptr) return std::make_shared<Completion>();
  return std::make_shared<Completion>(shared_, shared_->Record());
}

void Event::Record(std::shared_ptr<Completion> recording) {
  const MutexLock lock(mutex_);
  captured_ = nullptr;
  if (shared_ != nullptr) return;  // Latest asks the shared state
  latest_ = std::move(recording);
}

std::shared_ptr<const CapturedPoint> Event::captured() const {
  const MutexLock lock(mutex_);
  return captured_;
}

void Event::RecordCaptured(std::shared_ptr<const CapturedPoint> point) {
  const MutexLock lock(mutex_);
  captured_ = std::move(point);
}

}  // namespace fineserve::emucuda
