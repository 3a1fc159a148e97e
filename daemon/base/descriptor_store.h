#ifndef DAEMON_BASE_DESCRIPTOR_STORE_H_
#define DAEMON_BASE_DESCRIPTOR_STORE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::holder {

// Keeps descriptors beyond the life of this process: its parent holds them and
// hands them to the process that it starts next. The parent is systemd
// (FileDescriptorStoreMax=) or Supervisor; both speak sd_pid_notify_with_fds(3)
// and sd_listen_fds_with_names(3). Any thread, except for TakeAll.
class DescriptorStore {
 public:
  using Named = std::map<std::string, driver::Descriptor>;

  // True if this process has a parent that keeps descriptors: $NOTIFY_SOCKET is
  // set, and $FDSTORE says how many it keeps (systemd sets it from version 254
  // on).
  static bool Exists();
  // Returns the previous process's stored descriptors, by name. Must be called
  // once, before other threads exist, because it removes the variables from the
  // environment.
  static Named TakeAll();

  // Stores a copy of `descriptor`. A name has up to 200 letters, digits, dots
  // and hyphens; a caller that reuses a name must remove it first. Does nothing
  // if there is no such parent or it has gone. An error means that the parent
  // could not be reached.
  static absl::Status Store(const std::string& name, int descriptor);
  static void Remove(const std::string& name);
  // Waits until the parent has everything that was stored so far.
  static absl::Status Flush();
};

}  // namespace fineserve::holder

#endif  // DAEMON_BASE_DESCRIPTOR_STORE_H_
