#ifndef TOOLS_EMUCUDA_STREAM_CONTEXT_TABLE_H_
#define TOOLS_EMUCUDA_STREAM_CONTEXT_TABLE_H_

#include <array>
#include <functional>
#include <unordered_set>
#include <utility>

#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/stream/context.h"

namespace fineserve::emucuda {

// The process's contexts. A CUcontext is a Context* that must be looked up here
// before use. Thread-safe; waits for streams without holding its lock.
class ContextTable {
 public:
  // `on_end` runs when a context has been destroyed and its streams are idle.
  explicit ContextTable(std::function<void(const Context&)> on_end)
      : on_end_(std::move(on_end)) {}

  CUcontext Create(int device);
  // Returns INVALID_CONTEXT for a primary, dead or unknown context.
  CUresult Destroy(CUcontext context);
  // Returns null if no context ever had this handle. The context may be dead.
  Context* Find(CUcontext context) const;

  CUcontext RetainPrimary(int device);
  CUresult ReleasePrimary(int device);
  // Destroys the primary context, even if it is still retained.
  void ResetPrimary(int device);
  bool PrimaryActive(int device) const;

 private:
  struct Primary {
    Context* context = nullptr;
    int references = 0;
  };

  void End(Context* context) EMUCUDA_EXCLUDES(mutex_);

  const std::function<void(const Context&)> on_end_;
  mutable Mutex mutex_;
  std::unordered_set<Context*> known_ EMUCUDA_GUARDED_BY(mutex_);
  std::array<Primary, kMaxDevices> primaries_ EMUCUDA_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_STREAM_CONTEXT_TABLE_H_
