#include "shim/hooks/view_keeper.h"

#include <pthread.h>
#include <signal.h>

#include "shim/hooks/thread_state.h"
#include "shim/host/warn.h"

namespace fineserve::shim {
namespace {

// Starts a detached thread that takes no signal.
bool StartThread(void* (*run)(void*), void* argument) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error == 0;
}

}  // namespace

void ViewKeeper::Start(const Driver& real) {
  const MutexLock lock(&mutex_);
  real_ = &real;
  if (running_) {
    again_ = true;
    return;
  }
  running_ = StartThread(&ViewKeeper::Run, this);
  if (running_) return;
  Warn(
      "cannot start a thread: slabs are returned only while this engine runs "
      "steps");
}

void ViewKeeper::Stop() {
  // At most an unmapping, or an attempt to find the daemon, is under way.
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
