#ifndef TOOLS_LAB_DEVICE_STREAM_CONTEXT_TABLE_H_
#define TOOLS_LAB_DEVICE_STREAM_CONTEXT_TABLE_H_

#include <array>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/stream/context.h"

namespace fineserve::emucuda {

// The process's contexts. A CUcontext is a Context* that must be looked up here
// before use. Does not hold its lock while it waits for streams. Thread-safe.
class ContextTable {
 public:
  // A context's hold on its device's memory, which lasts as long as the context
  // lives.
  using Upkeep = std::shared_ptr<const void>;
  // `on_begin` gets the upkeep of a new context, or returns the error that
  // prevents it. `on_end` runs when a context has been destroyed and its
  // streams are idle, before the upkeep is dropped.
  ContextTable(std::function<CUresult(int device, Upkeep*)> on_begin,
               std::function<void(const Context&)> on_end)
      : on_begin_(std::move(on_begin)), on_end_(std::move(on_end)) {}

  CUresult Create(int device, CUcontext* context);
  // Gives a living context the further upkeep that `take` gets, once in the
  // context's life.
  CUresult Grow(const Context& context,
                const std::function<CUresult(Upkeep*)>& take);
  // Returns INVALID_CONTEXT for a primary, dead or unknown context.
  CUresult Destroy(CUcontext context);
  // Returns null if no context ever had this handle. The context may be dead.
  Context* Find(CUcontext context) const;

  CUresult RetainPrimary(int device, CUcontext* context);
  CUresult ReleasePrimary(int device);
  // Destroys the primary context, even if it is still retained.
  void ResetPrimary(int device);
  bool PrimaryActive(int device) const;

 private:
  struct Primary {
    Context* context = nullptr;
    int references = 0;
  };

  struct Kept {
    Upkeep from_start;
    Upkeep growth;
  };

  void End(Context* context) EMUCUDA_EXCLUDES(mutex_);

  const std::function<CUresult(int, Upkeep*)> on_begin_;
  const std::function<void(const Context&)> on_end_;
  mutable Mutex mutex_;
  std::unordered_set<Context*> known_ EMUCUDA_GUARDED_BY(mutex_);
  std::unordered_map<const Context*, Kept> upkeep_
      EMUCUDA_GUARDED_BY(mutex_);  // of those that are alive
  std::array<Primary, kMaxDevices> primaries_ EMUCUDA_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_STREAM_CONTEXT_TABLE_H_
