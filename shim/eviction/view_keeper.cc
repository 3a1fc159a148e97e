#include "shim/eviction/view_keeper.h"

#include <pthread.h>

#include "shim/host/own_thread.h"
#include "shim/host/thread_state.h"
#include "shim/host/warn.h"

namespace fineserve::shim {
void ViewKeeper::Start(const Driver& real) {
  const MutexLock lock(&mutex_);
  real_ = &real;
  if (running_) {
    again_ = true;
    return;
  }
  running_ = StartOwnThread(&ViewKeeper::Run, this);
  if (running_) return;
  Warn(
      "cannot start a thread: slabs are returned only while this engine runs "
      "steps");
}

void ViewKeeper::Stop() {
  // Waits at most for an unmapping or an attempt to find the daemon.
  const MutexLock lock(&turn_);
  stopped_ = true;
}

void* ViewKeeper::Run(void* keeper) {
  pthread_setname_np(pthread_self(), "fineserve-view");
  static_cast<ViewKeeper*>(keeper)->Keep();
  return nullptr;
}

void ViewKeeper::Keep() {
  for (;;) {
    const EngineView::Pause pause = KeepOnce();
    if (pause.ms > 0) {
      EngineView::SleepFor(pause);
    } else if (MayEnd()) {
      return;
    }
  }
}

EngineView::Pause ViewKeeper::KeepOnce() {
  const Driver* real;
  {
    const MutexLock lock(&mutex_);
    real = real_;
  }
  const MutexLock turn(&turn_);
  const ReentryGuard guard;
  return stopped_ ? EngineView::Pause() : view_->Keep(*real);
}

bool ViewKeeper::MayEnd() {
  const MutexLock lock(&mutex_);
  running_ = again_;
  again_ = false;
  return !running_;
}

}  // namespace fineserve::shim
