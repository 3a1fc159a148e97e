#ifndef TOOLS_EMUCUDA_NVML_VISIBLE_PIDS_H_
#define TOOLS_EMUCUDA_NVML_VISIBLE_PIDS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/control_file.h"

namespace fineserve::emucuda {

// Names a device's clients by the pids that they have in this process's pid
// namespace, as NVIDIA's kernel module does for its caller. Thread-safe.
class VisiblePids {
 public:
  using Client = ControlFile::Client;

  // Returns the clients of a device that can be seen from here, with their pids
  // here. One of another namespace that is dead can be seen if it could while
  // it lived.
  std::vector<Client> Of(int device, const std::vector<Client>& clients)
      EMUCUDA_EXCLUDES(mutex_);

 private:
  using Place = std::pair<uint64_t, uint32_t>;  // namespace, pid in it

  Mutex mutex_;
  // Clients of other namespaces in a device's last list, with their pids here.
  std::map<int, std::map<Place, uint32_t>> seen_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_NVML_VISIBLE_PIDS_H_
