#include "tools/emucuda/kernel/kernel_table.h"

#include <functional>
#include <map>
#include <utility>

#include "tools/emucuda/kernel/fill_kernel.h"
#include "tools/emucuda/kernel/own_kernel.h"
#include "tools/emucuda/machine/annotated_mutex.h"

namespace fineserve::emucuda {
namespace {

// The kernels that programs registered. Never destroyed.
struct Registry {
  Mutex mutex;
  std::map<std::string, HostKernel, std::less<>> kernels
      EMUCUDA_GUARDED_BY(mutex);
};

Registry& Registered() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace

void RegisterHostKernel(std::string name, HostKernel kernel) {
  Registry& registry = Registered();
  const MutexLock lock(registry.mutex);
  registry.kernels[std::move(name)] = std::move(kernel);
}

std::optional<HostKernel> FindHostKernel(std::string_view mangled_name) {
  {
    Registry& registry = Registered();
    const MutexLock lock(registry.mutex);
    const auto found = registry.kernels.find(mangled_name);
    if (found != registry.kernels.end()) return found->second;
  }
  std::optional<HostKernel> own = FindOwnKernel(mangled_name);
  return own ? std::move(own) : FindFillKernel(mangled_name);
}

}  // namespace fineserve::emucuda
