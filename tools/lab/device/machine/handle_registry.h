#ifndef TOOLS_LAB_DEVICE_MACHINE_HANDLE_REGISTRY_H_
#define TOOLS_LAB_DEVICE_MACHINE_HANDLE_REGISTRY_H_

#include <memory>
#include <unordered_map>
#include <utility>

#include "tools/lab/device/machine/annotated_mutex.h"

namespace fineserve::emucuda {

// The live objects behind opaque driver handles. A stale or forged handle is
// recognised and never dereferenced. Thread-safe.
template <typename Handle, typename Object>
class HandleRegistry {
 public:
  Handle Add(std::shared_ptr<Object> object) {
    const auto handle = reinterpret_cast<Handle>(object.get());
    const MutexLock lock(mutex_);
    objects_[handle] = std::move(object);
    return handle;
  }

  std::shared_ptr<Object> Find(Handle handle) const {
    const MutexLock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  // Removes the object from the list and returns it; null if it was not listed.
  std::shared_ptr<Object> Remove(Handle handle) {
    const MutexLock lock(mutex_);
    auto node = objects_.extract(handle);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

 private:
  mutable Mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<Object>> objects_
      EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_HANDLE_REGISTRY_H_
