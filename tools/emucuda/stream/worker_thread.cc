#include "tools/emucuda/stream/worker_thread.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

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

// EAGAIN also says that another thread is about to exec: either this one ends
// with it, or threads can be started again soon.
int Create(pthread_t* thread, void* argument) {
  constexpr int kMostTries = 1000;
  int error = EAGAIN;
  for (int i = 0; i < kMostTries && error == EAGAIN; ++i) {
    error = pthread_create(thread, nullptr, Run, argument);
    if (error == EAGAIN) usleep(1000);
  }
  return error;
}

}  // namespace

bool StartDetached(std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  // It takes the program's signals, as a real driver's threads do.
  pthread_t thread;
  if (Create(&thread, owned.get()) != 0) return false;
  static_cast<void>(owned.release());  // Run owns it
  pthread_detach(thread);
  return true;
}

}  // namespace fineserve::emucuda
