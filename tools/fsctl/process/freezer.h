#ifndef TOOLS_FSCTL_PROCESS_FREEZER_H_
#define TOOLS_FSCTL_PROCESS_FREEZER_H_

#include <sys/types.h>

#include <string>

namespace fineserve::fsctl {

// A command that thaws the cgroup that keeps a process frozen, its own or one
// above it, of version 1 or 2: "echo 0 >'/sys/fs/cgroup/…/cgroup.freeze'".
// Empty if none does, as far as this user can see.
std::string ThawCommand(pid_t pid);

// The same from the text of /proc/PID/cgroup and of /proc/self/mountinfo.
std::string ThawCommand(const std::string& cgroups, const std::string& mounts);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_FREEZER_H_
