#ifndef DAEMON_CONTRACT_ABI_OBSERVER_LINK_H_
#define DAEMON_CONTRACT_ABI_OBSERVER_LINK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/contract/abi/messages.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::abi {

// An observer's connection to a daemon. The daemon forgets the observer when
// `socket` closes; the table stays readable after that.
struct ObserverLink {
  driver::Descriptor socket;
  Welcome welcome;
  driver::Descriptor table;
};

// Connects as an observer. Every wait is bounded by `timeout`. Errors:
//   NotFound            there is no socket at `path`
//   Unavailable         there is a socket, but no process listens
//   Aborted             a process listens, but hung up
//   DeadlineExceeded    a process listens, but does not answer
//   FailedPrecondition  it has another abi_version; the message names both
//   PermissionDenied    another user can listen at `path`
//   PermissionDenied, ResourceExhausted, …  it refused, with this message
//   DataLoss            it answered, but not as a fineserved does
//   Unknown             the system refused a socket to this process
absl::StatusOr<ObserverLink> ConnectObserver(
    const std::string& path, absl::Duration timeout = absl::Seconds(2));

// Connects as a process of the engine with this name, as a shim does. The
// daemon treats this process as a member until it exits.
absl::StatusOr<ObserverLink> ConnectMember(
    const std::string& path, const std::string& engine_name,
    absl::Duration timeout = absl::Seconds(2));

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_OBSERVER_LINK_H_
