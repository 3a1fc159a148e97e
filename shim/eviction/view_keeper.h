#ifndef SHIM_EVICTION_VIEW_KEEPER_H_
#define SHIM_EVICTION_VIEW_KEEPER_H_

#include "shim/host/plain_mutex.h"
#include "shim/host/real_driver.h"
#include "shim/view/engine_view.h"

namespace fineserve::shim {

// The thread that keeps an engine's view between the engine's steps
// (EngineView::Keep). It sleeps on the slab table's word for this engine, and
// wakes once a second if nothing happens. It takes no signal of the host, and
// ends once no view is active and the daemon knows of every lease that has
// ended. A forked child has no such thread, and no view.
//
// Thread-safe. Constant-initialised, trivially destroyed.
class ViewKeeper {
 public:
  // The view must outlive this object.
  constexpr explicit ViewKeeper(EngineView* view) : view_(view) {}

  // Starts the thread, unless it runs already, for a view that was activated or
  // whose end a daemon has to learn. Without the thread, ask-backs wait for the
  // engine's next step.
  void Start(const Driver& real);

  // Called at the program's exit: the thread makes no driver calls after it.
  void Stop();

 private:
  static void* Run(void* keeper);
  void Keep();
  EngineView::Pause KeepOnce();
  bool MayEnd();

  EngineView* const view_;
  Mutex mutex_;
  const Driver* real_ FINESERVE_GUARDED_BY(mutex_) = nullptr;
  bool running_ FINESERVE_GUARDED_BY(mutex_) = false;
  bool again_ FINESERVE_GUARDED_BY(mutex_) = false;  // Start was called
  Mutex turn_;  // held while the thread does something
  bool stopped_ FINESERVE_GUARDED_BY(turn_) = false;
};

}  // namespace fineserve::shim

#endif  // SHIM_EVICTION_VIEW_KEEPER_H_
