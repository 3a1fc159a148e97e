#ifndef TOOLS_UP_WISH_H_
#define TOOLS_UP_WISH_H_

#include "daemon/contract/wire/message_types.h"
#include "daemon/contract/wire/newest_plan.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::fsctl {

// The intent of the plan, or of the requests, for an engine.
enum class Wish {
  // Neither plan nor requests decide: a running engine goes on, any other stays
  // down.
  kUnknown,
  kRun,
  kStop,
};

// A place should run unless the plan names it as off. If the plan does not name
// a place, its wish is unknown, since the leader may have another fleet file.
// Requests decide about a place that starts on request (RequestFollower). Any
// other engine should always run.
Wish WishOf(const wire::NewestPlan& plan, const config::FleetEngine& engine);

// Takes the plan if it is newer than the known one. Returns true if it is.
bool Learn(const wire::PlanT& reported, wire::NewestPlan* known);

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_WISH_H_
