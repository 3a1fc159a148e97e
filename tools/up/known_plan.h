#ifndef TOOLS_UP_KNOWN_PLAN_H_
#define TOOLS_UP_KNOWN_PLAN_H_

#include <cstdint>
#include <map>
#include <string>

#include "daemon/config/fleet.h"
#include "daemon/wire/message_types.h"

namespace fineserve::fsctl {

// The plan's intent for an engine.
enum class Wish {
  kUnknown,  // no plan says: if it runs it goes on, else it stays down
  kRun,
  kStop,
};

// The newest plan that `fsctl up` has heard of, and what it makes of it.
class KnownPlan {
 public:
  // Keeps `plan` if it is newer than the one that is known. Returns whether it
  // is.
  bool Learn(const wire::PlanT& plan);

  uint64_t number() const { return number_; }  // 0: none is known

  // A place is to run unless the plan names it as off. The state of a place
  // that the plan does not name is unknown: the leader may have another fleet
  // file. Any other engine is to run in any case.
  Wish Of(const config::FleetEngine& engine) const;

 private:
  uint64_t term_ = 0;
  uint64_t number_ = 0;
  std::map<std::string, bool> runs_;  // by place that the plan names
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_KNOWN_PLAN_H_
