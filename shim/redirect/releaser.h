#ifndef SHIM_REDIRECT_RELEASER_H_
#define SHIM_REDIRECT_RELEASER_H_

#include "daemon/contract/abi/hooks.h"
#include "kernels/driver/entry_points.h"
#include "shim/host/original.h"
#include "shim/host/real_driver.h"
#include "shim/link/daemon_link.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/map/range_table.h"
#include "shim/redirect/deferred_frees.h"
#include "shim/redirect/opened_memory.h"
#include "shim/redirect/peer_access.h"
#include "shim/view/engine_view.h"
#include "shim/weights/resident_memory.h"

namespace fineserve::shim {

// Ends redirected allocations: at once, or when the stream on which they were
// freed has passed the free. Records each end. Thread-safe;
// constant-initialised, trivially destroyed. Not for a forked child, which owns
// no memory that it inherited.
class Releaser {
 public:
  // The arguments must outlive this object.
  constexpr Releaser(RangeTable* ranges, DaemonLink* link, EngineView* view,
                     OpenedMemory* opened, PeerAccess* peers,
                     ScoreboardWriter* scoreboard)
      : ranges_(ranges),
        link_(link),
        view_(view),
        opened_(opened),
        peers_(peers),
        scoreboard_(scoreboard) {}

  driver::CUresult Free(const Driver& real, driver::CUdeviceptr address);

  // Frees a redirected range once the work before the free on `stream` is done;
  // until then other engines do not get its slabs. Makes `original`'s call for
  // every other address.
  driver::CUresult FreeInStreamOrder(const Driver& real, abi::Hook hook,
                                     driver::CUdeviceptr address,
                                     driver::CUstream stream,
                                     const Original& original);

  // These make `original`'s call, which may destroy a context or the device's
  // primary context. They also end the memory redirected in that context,
  // whether or not it was freed in stream order. Like the driver's own memory,
  // it ends with its context.
  driver::CUresult DestroyContext(const Driver& real, abi::Hook hook,
                                  driver::CUcontext context,
                                  const Original& original);
  driver::CUresult EndPrimary(const Driver& real, abi::Hook hook,
                              driver::CUdevice device,
                              const Original& original);

  // Returns the slabs of ranges that were freed in stream order and whose
  // streams have passed the free, and reports to the daemon the ends that it
  // does not know. True if there were any such ranges.
  bool CollectPassed(const Driver& real);
  // Like CollectPassed, but waits until there are some: at most a second, and
  // not at all if no memory was freed in stream order.
  bool WaitForPassed(const Driver& real);
  // True if memory that was freed in stream order has not been returned yet, or
  // the daemon does not know of an end yet. Takes no lock.
  bool has_deferred() const {
    return !deferred_.empty() || link_->has_unconfirmed_ends();
  }

  // The process's resident allocations; must outlive this object.
  void set_resident(ResidentMemory* resident) { resident_ = resident; }

  // Unmaps a range that the program never saw, without waiting.
  driver::CUresult Discard(const Driver& real, const Redirection& range);

 private:
  bool IsOpened(driver::CUdeviceptr address);
  void NoteEnd(abi::Hook hook, const Redirection& range,
               driver::CUresult result);
  driver::CUresult Unmap(const Driver& real, const Redirection& range,
                         bool waits);
  driver::CUresult Release(const Driver& real, abi::Hook hook,
                           const Redirection& range);
  void EndContext(const Driver& real, abi::Hook hook,
                  driver::CUcontext context);
  bool Drop(const Driver& real, abi::Hook hook, const Redirection& range);
  driver::CUresult Defer(const Driver& real, abi::Hook hook,
                         const Redirection& range, driver::CUstream stream);

  RangeTable* const ranges_;
  DaemonLink* const link_;
  EngineView* const view_;
  OpenedMemory* const opened_;
  PeerAccess* const peers_;
  ScoreboardWriter* const scoreboard_;
  ResidentMemory* resident_ = nullptr;
  DeferredFrees deferred_;
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_RELEASER_H_
