#ifndef TOOLS_FSCTL_UPGRADE_LEASE_PROBE_H_
#define TOOLS_FSCTL_UPGRADE_LEASE_PROBE_H_

#include <string>

#include "absl/status/statusor.h"

namespace fineserve::fsctl {

// Leases one slab of the daemon that listens there, as an engine would, and
// returns it. Says what came of it: a full pool or a full table is no error,
// because nothing is asked back for this. This process is a member of an engine
// "fsctl-upgrade" from then on until it ends.
absl::StatusOr<std::string> ProbeLease(const std::string& socket,
                                       bool any_is_free);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_LEASE_PROBE_H_
