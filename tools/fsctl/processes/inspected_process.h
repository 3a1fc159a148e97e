#ifndef TOOLS_FSCTL_PROCESSES_INSPECTED_PROCESS_H_
#define TOOLS_FSCTL_PROCESSES_INSPECTED_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/holders.h"
#include "daemon/contract/abi/scoreboard_reader.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/processes/address_map.h"

namespace fineserve::fsctl {

// Returns "its descriptor table is full (994 of 1024); …" if the process
// accepts no connection for lack of descriptors. Empty if it accepts some, or
// if this user may not see that.
std::string FullDescriptorTable(pid_t pid);

// Functions with which fsctl reads another process.

// Returns ok if the process exists and this user may inspect it; otherwise
// NotFound or PermissionDenied, with what to do.
absl::Status CheckProcess(pid_t pid);

// Returns the child processes of all its threads. Also empty if the kernel does
// not list them.
std::set<pid_t> ChildrenOf(pid_t pid);

// Returns the files that the process has mapped, with the names of their
// functions.
AddressMap ReadMap(pid_t pid);

// Opens a memfd that a process holds, for reading. NotFound if the process has
// closed it by now.
absl::StatusOr<driver::Descriptor> OpenHeld(const abi::Holder& holder);

using abi::FindScoreboard;

// The state of a process's link to its daemon.
struct LinkText {
  const char* name;   // for programs
  const char* words;  // for people
};
const LinkText& TextOf(abi::LinkState state);

// Returns all bytes of a file; empty if it cannot be read, such as a file of a
// process that has just ended.
std::string ReadFile(const std::string& path);

// Returns the last line with text that begins in the last 4 KiB of an open file
// and not before `begin`; empty if there is none.
std::string LastLine(int file, off_t begin = 0);

// Returns the TCP ports of this machine at which processes of this process
// group listen, as far as /proc shows them to this user.
std::set<uint16_t> ListeningPorts(pid_t group);

// Returns a command that thaws the cgroup that keeps a process frozen (the
// process's cgroup or one above it, of version 1 or 2): "echo 0
// >'/sys/fs/cgroup/…/cgroup.freeze'". Empty if no cgroup does, as far as this
// user can see.
std::string ThawCommand(pid_t pid);

// The same, from the text of /proc/PID/cgroup and of /proc/self/mountinfo.
std::string ThawCommand(const std::string& cgroups, const std::string& mounts);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESSES_INSPECTED_PROCESS_H_
