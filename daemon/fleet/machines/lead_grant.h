#ifndef DAEMON_FLEET_MACHINES_LEAD_GRANT_H_
#define DAEMON_FLEET_MACHINES_LEAD_GRANT_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fineserve::cluster {

// Permission from this machine's fineserve-node for a fineserved of this
// machine to lead the fleet: the file lead.grant in the runtime folder (0700),
// replaced whole. It expires by itself, also if the node dies.
struct LeadGrant {
  uint64_t term = 0;
  uint64_t until_ns = 0;  // CLOCK_MONOTONIC
  // The plan with which the term began, as lead::PlanText; empty: there was
  // none.
  std::string plan;
  // The number of the newest plan stored in etcd. A leader sends no newer plan,
  // since the next leader would not know it.
  uint64_t carried = 0;
  std::set<std::string> lost_machines;
};

std::string GrantPath(const std::string& folder);
absl::Status WriteGrant(const std::string& folder, const LeadGrant& grant);
void RemoveGrant(const std::string& folder);
// Reads the grant. NotFound if there is none, or it has ended, or ends later
// than any lease could: the file has survived a reboot. InvalidArgument if the
// file is not a grant of ours.
absl::StatusOr<LeadGrant> ReadGrant(const std::string& folder, uint64_t now_ns);

// Reads a small file. NotFound if it cannot be read.
absl::StatusOr<std::string> ReadWhole(const std::string& path);
// Replaces the file. A reader finds either the old file or the new one, whole.
absl::Status ReplaceFile(const std::string& path, const std::string& text);

}  // namespace fineserve::cluster

#endif  // DAEMON_FLEET_MACHINES_LEAD_GRANT_H_
