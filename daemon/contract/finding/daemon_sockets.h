#ifndef DAEMON_CONTRACT_FINDING_DAEMON_SOCKETS_H_
#define DAEMON_CONTRACT_FINDING_DAEMON_SOCKETS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Sockets of the daemons of this machine, each beside the others in the runtime
// folder (daemon/contract/abi/socket_path.h), by the UUID of its GPU:
//
//   GPU-….sock        engines and observers; every daemon has it
//   GPU-….admission   messages of daemon/contract/wire; a daemon with a fleet
//   has it
//
// A daemon that was killed leaves both behind. Any thread.

namespace fineserve::finding {

// True if `name` means the GPU of this UUID: it is the UUID's beginning, with
// or without "GPU-" or "MIG-" in front, in any case. A daemon knows a MIG
// instance only by the bytes of its UUID, so the two prefixes mean the same.
// The empty name means every GPU. This one rule applies to --gpu, the fleet
// file and the names of sockets.
bool MeansGpu(absl::string_view name, absl::string_view uuid);

// True if both names may mean one GPU: one of them is the other's beginning.
bool MayBeOneGpu(absl::string_view a, absl::string_view b);

// Returns the folder in which this process looks for daemons.
std::string RuntimeFolder();

// Creates the folder if it does not exist. Returns PermissionDenied, with the
// fix, unless the folder belongs to this user alone.
absl::Status MakeRuntimeFolder(const std::string& folder);

// True if --gpu names a daemon by its socket instead of its GPU.
bool IsSocketPath(absl::string_view gpu);

// Returns the UUID of a socket's GPU, as it appears in the file's name.
std::string GpuOfSocket(absl::string_view socket);

// Returns the .sock paths in `folder` whose GPU `gpu` means (MeansGpu), sorted;
// if `gpu` is a socket's path, that path alone.
std::vector<std::string> ListSockets(const std::string& folder,
                                     const std::string& gpu = "");

// Returns the admission path beside a daemon's socket.
std::string AdmissionPath(absl::string_view socket);

// Like ListSockets, returns the admission paths, but only those at which a
// process listens: ZeroMQ would try forever to connect to a stale one.
std::vector<std::string> ListAdmissionPaths(const std::string& folder,
                                            const std::string& gpu);

// Returns the admission path of the GPU that `gpu` means. If there are several,
// returns the one at which a process listens; a single path may have no
// listener at the moment. NotFound if there is none, FailedPrecondition if
// there are several.
absl::StatusOr<std::string> FindAdmissionPath(const std::string& folder,
                                              const std::string& gpu);

// True if a process listens at the path.
bool IsListenedAt(const std::string& path);

}  // namespace fineserve::finding

#endif  // DAEMON_CONTRACT_FINDING_DAEMON_SOCKETS_H_
