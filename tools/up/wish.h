#ifndef TOOLS_UP_WISH_H_
#define TOOLS_UP_WISH_H_

#include "daemon/contract/wire/message_types.h"
#include "daemon/contract/wire/newest_plan.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::fsctl {

// The intent of the plan, or of the requests, for an engine.
enum class Wish {
  // Neither plan nor request decides: a running engine goes on, any other stays
  // down.
  kUnknown,
  kRun,
  kStop,
};

// A place is to run unless the plan names it as off. The state of a place that
// the plan does not name is unknown: the leader may have another fleet file.
// Requests decide over one that starts on request (RequestFollower). Any other
// engine is to run in any case.
Wish WishOf(const wire::NewestPlan& plan, const config::FleetEngine& engine);

// Takes the plan if it is newer than the known one. Returns true if it is.
bool Learn(const wire::PlanT& reported, wire::NewestPlan* known);

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_WISH_H_
