#include "daemon/scheduling/local/policy/make_policy.h"

#include "absl/strings/str_cat.h"
#include "daemon/scheduling/local/policy/adaptive_policy.h"
#include "daemon/scheduling/local/policy/fcfs_policy.h"
#include "daemon/scheduling/local/policy/moore_hodgson_policy.h"

namespace fineserve::sched {

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const std::string& name,
                                                   double floor_share) {
  if (name == "fineserve") return std::make_unique<AdaptivePolicy>(floor_share);
  if (name == "moore-hodgson") return std::make_unique<MooreHodgsonPolicy>();
  if (name == "fcfs") return std::make_unique<FcfsPolicy>();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no policy \"", name,
                   "\"; there are fineserve, moore-hodgson, fcfs"));
}

}  // namespace fineserve::sched
