#ifndef DAEMON_SCHEDULING_LEAD_ADVANCE_H_
#define DAEMON_SCHEDULING_LEAD_ADVANCE_H_

#include <cstdint>
#include <map>
#include <string>

#include "daemon/fleet/config/fleet.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::lead {

// The facts known about an engine now.
struct Sighting {
  bool heard = false;  // its daemon answers, and hears a proxy
  bool serves = false;
  uint32_t running = 0;     // requests
  bool knows_plan = false;  // its daemon and proxies apply the present plan
  bool here = {};           // a process of it may leave, or has left, its GPU
};
using Sightings = std::map<std::string, Sighting>;  // by engine

// Takes the plan's move one step on, if what is seen allows it, or undoes it
// (design note 0024):
//
//   to starts ──serves──> to serves, from retires ──runs nothing──> from off
//      │ not in time          │ `to` is lost while `from` serves
//      v                      v
//   to off                 to off, from serves
//
// At every step at least one of the two serves by the plan, if `from` did
// before. `for_s`: since the last step, by this leader's clock. Returns what
// happened, in words; empty: nothing. Does not change the plan's number.
std::string Advance(const Sightings& seen, double for_s,
                    const config::PlannerSettings& settings,
                    StandingPlan* plan);

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_ADVANCE_H_
