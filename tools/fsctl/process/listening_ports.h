#ifndef TOOLS_FSCTL_PROCESS_LISTENING_PORTS_H_
#define TOOLS_FSCTL_PROCESS_LISTENING_PORTS_H_

#include <sys/types.h>

#include <cstdint>
#include <set>

namespace fineserve::fsctl {

// TCP ports of this machine at which processes of this process group listen, as
// far as /proc shows them to this user.
std::set<uint16_t> ListeningPorts(pid_t group);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_LISTENING_PORTS_H_
