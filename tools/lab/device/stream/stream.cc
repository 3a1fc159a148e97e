#include "tools/lab/device/stream/stream.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace fineserve::emucuda {
namespace {

void* Run(void* argument) {
  std::unique_ptr<std::function<void()>> body(
      static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

// Retries on EAGAIN, which can also mean that another thread is about to exec:
// either the exec ends this thread, or it fails and threads can soon be started
// again.
int Create(pthread_t* thread, void* argument) {
  constexpr int kMostTries = 1000;
  int error = EAGAIN;
  for (int i = 0; i < kMostTries && error == EAGAIN; ++i) {
    error = pthread_create(thread, nullptr, Run, argument);
    if (error == EAGAIN) usleep(1000);
  }
  return error;
}

// Runs `body` on a detached thread. Returns false if no thread can be started
// (std::thread would throw).
bool StartDetached(std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  // The thread takes the program's signals, as a real driver's threads do.
  pthread_t thread;
  if (Create(&thread, owned.get()) != 0) return false;
  static_cast<void>(owned.release());  // Run owns it
  pthread_detach(thread);
  return true;
}

// Relaxed: a setting, which orders nothing.
std::atomic<unsigned> g_delay_us{0};

}  // namespace

void SetStreamDelay(unsigned microseconds) {
  g_delay_us.store(microseconds, std::memory_order_relaxed);
}

uint64_t Stream::NextId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

CUresult Stream::Push(Operation operation) {
  const MutexLock lock(mutex_);
  if (closed_) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!working_) {
    if (!StartDetached([self = shared_from_this()] { self->Work(); })) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    working_ = true;
  }
  queue_.push_back(std::move(operation));
  ++pushed_;
  changed_.NotifyAll();
  return CUDA_SUCCESS;
}

std::shared_ptr<Capture> Stream::capture() const {
  const MutexLock lock(mutex_);
  return capture_;
}

bool Stream::StartCapture(std::shared_ptr<Capture> capture) {
  const MutexLock lock(mutex_);
  if (capture_ != nullptr) return false;
  capture_ = std::move(capture);
  return true;
}

void Stream::StopCapture() {
  std::shared_ptr<Capture> last;  // destroyed after the lock is released
  const MutexLock lock(mutex_);
  last = std::move(capture_);
}

Dependency Stream::Tail() {
  const MutexLock lock(mutex_);
  return {shared_from_this(), pushed_};
}

bool Stream::Idle() {
  const MutexLock lock(mutex_);
  return completed_ == pushed_;
}

bool Stream::Reached(uint64_t position) {
  const MutexLock lock(mutex_);
  return completed_ >= position;
}

void Stream::WaitFor(uint64_t position) {
  const MutexLock lock(mutex_);
  while (completed_ < position) changed_.Wait(mutex_);
}

void Stream::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

void Stream::Work() {
  for (Operation operation; Next(&operation);) {
    Execute(&operation);
    // Makes the operation release its resources before it counts as complete.
    operation = {};
    const MutexLock lock(mutex_);
    ++completed_;
    changed_.NotifyAll();
  }
}

bool Stream::Next(Operation* operation) {
  const MutexLock lock(mutex_);
  while (queue_.empty() && !closed_) changed_.Wait(mutex_);
  if (queue_.empty()) return false;
  *operation = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Stream::Execute(Operation* operation) {
  for (const Dependency& before : operation->after) {
    before.stream->WaitFor(before.position);
  }
  const unsigned delay_us = g_delay_us.load(std::memory_order_relaxed);
  if (operation->is_work && delay_us > 0) usleep(delay_us);
  if (operation->run) operation->run();
}
}  // namespace fineserve::emucuda
