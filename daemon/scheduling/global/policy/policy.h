#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_POLICY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_POLICY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/scheduling/global/model/assignment.h"
#include "daemon/scheduling/global/policy/journal.h"
#include "daemon/scheduling/global/policy/local_search.h"
#include "daemon/scheduling/global/score/efficiency.h"
#include "daemon/scheduling/global/score/kv_pressure.h"
#include "daemon/scheduling/global/score/sharing.h"

namespace fineserve::plan {

// A policy's name and origin.
struct About {
  const char* name;
  Tier tier;
  const char* source;
  Sharing sharing = Sharing::kPool;
  Charge charge = Charge::kLeast;  // what it checks before it places
};

struct PolicyOptions {
  Efficiency efficiency = Efficiency::kStructural;
  Pressure pressure = Pressure::kV1;
  // Prism's τ: a model stays where it is unless its KVPR there exceeds the best
  // by more than this fraction of the best. The papers name no value: 0.2 is
  // what our replanning asks for.
  double stay_share = 0.2;
  SearchLimits search;  // of fineserve-opt
};

// Assigns replicas to groups of GPUs. One implementation per file; no state
// between calls.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual const About& about() const = 0;
  // Returns an assignment; replicas that it cannot place are left out.
  // `journal` may be null. The result refers to the problem.
  virtual Assignment Place(const Problem& problem, Journal* journal) const = 0;
};

// Returns the policy of this name. For any other name, InvalidArgument, naming
// all policies.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(
    const std::string& name, const PolicyOptions& options);

// All names, those of ours last.
std::vector<std::string> PolicyNames();

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_POLICY_H_
