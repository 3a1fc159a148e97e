#ifndef TOOLS_FSCTL_UPGRADE_SERVING_DAEMON_H_
#define TOOLS_FSCTL_UPGRADE_SERVING_DAEMON_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {

// The daemon that serves a pool, and the keeper of that pool, which starts the
// next one.
struct ServingDaemon {
  enum class Keeper { kSupervisor, kSystemd };

  pid_t pid = 0;
  uint64_t start = 0;  // ProcessStart
  // Absolute. The keeper's next start runs whichever file is there at that
  // time.
  std::string program;
  std::vector<std::string> arguments;    // without the program
  std::vector<std::string> environment;  // "NAME=value"
  // The running program, even if another file is at `program` now.
  driver::Descriptor executable;
  Keeper keeper = Keeper::kSupervisor;
  pid_t keeper_pid = 0;
  uint64_t keeper_start = 0;
  std::string unit;              // of systemd
  bool of_user_manager = false;  // systemctl --user
};

// Returns FailedPrecondition, with what to do, if the daemon's pool has no
// keeper.
absl::StatusOr<ServingDaemon> FindServingDaemon(pid_t pid);

// Returns PermissionDenied unless `daemon` is the process that answers on this
// connection, since the pid in the table is only the daemon's claim.
absl::Status CheckAnswers(const ServingDaemon& daemon, int socket);

// The daemon's user, who sets the path by which the daemon was started, must
// not choose the program that root executes and replaces. Returns
// PermissionDenied, with the reason, if this process is root's and the daemon's
// program is not at that path, or others can change it. OK for every other
// user.
absl::Status CheckTrust(const ServingDaemon& daemon);

// "fineserved --supervise (pid 4711)", "systemd (fineserved@0.service)".
std::string KeeperName(const ServingDaemon& daemon);

// Makes the keeper stop its daemon and start the program that is at `program`
// now. Does not wait for the start.
absl::Status StartNext(const ServingDaemon& daemon);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_SERVING_DAEMON_H_
