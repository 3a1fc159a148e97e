#ifndef DAEMON_SCHEDULING_LEAD_OUTLOOK_H_
#define DAEMON_SCHEDULING_LEAD_OUTLOOK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/fleet/config/fleet.h"
#include "daemon/scheduling/global/model/snapshot.h"
#include "daemon/scheduling/lead/demand_window.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::lead {

using admission::Demand;
using admission::DemandWindow;
using admission::kNsPerSecond;

// UUIDs of an engine's GPUs, in ascending order.
using GpuGroup = std::vector<std::string>;

// A GPU as its daemon reports it.
struct GpuMemory {
  double memory_bytes = 0;  // of the device
  double pool_bytes = 0;
  // The part of its machine's memory that processes and stores may use; 0: not
  // known.
  double host_bytes = {};
  bool operator==(const GpuMemory&) const = default;
};

// The places that are off and have a process that may rest, by engine; true if
// the last decision also let the place rest.
using PlacesOff = std::map<std::string, bool>;

// The planner's input: the fleet, the demand on it and what runs, in the form
// that daemon/scheduling/global takes. Its models are those of the fleet that
// have places, and those with engines that never move, if their sizes are
// known.
class Outlook {
 public:
  // All arguments must outlive this object. `gpus` is by UUID; engines on other
  // GPUs are not planned.
  Outlook(const config::Fleet& fleet, const StandingPlan& plan,
          const std::map<std::string, GpuMemory>& gpus,
          const std::map<std::string, Demand>& demand);

  // Returns a snapshot with every serving engine at its present place; the
  // planner is free to choose how many replicas a model gets, and their places.
  plan::Snapshot Free() const;
  // Returns the same with as many replicas as serve now.
  plan::Snapshot AsItIs() const;
  // Returns the same, as if `off` did not serve and `on` did (engines; empty:
  // none).
  plan::Snapshot After(const std::string& on, const std::string& off) const;

  // Returns a snapshot of the running engines where they run, whatever they do
  // there, and of those that rest beside them. Of the places that are off, only
  // those in `off` may rest. Pins have no effect here, because they say where a
  // model serves.
  plan::Snapshot WhileOff(const PlacesOff& off) const;

  // Returns the place of a model on these GPUs; null if it has none there.
  const config::FleetEngine* PlaceOn(const std::string& model,
                                     const GpuGroup& gpus) const;
  // Returns the engine's GPUs; empty if one of them is not known.
  GpuGroup GpusOf(const config::FleetEngine& engine) const;
  // Returns the engines of the model that serve by the plan, by their GPUs.
  std::map<GpuGroup, std::string> Serving(const std::string& model) const;

  // Returns the bytes that the model's engine lacks where it lacks most, beside
  // all that runs there by the plan. On each of its GPUs, weights, activations
  // and contexts have what the pool leaves, and floors have the pool; processes
  // have the host memory. If the result is 0 or less, the engine fits. Resting
  // engines give way.
  double Shortfall(const config::FleetEngine& engine) const;

  // Returns the demand to plan for: the demand that was seen, else the one that
  // the fleet file expects, else almost none.
  Demand PlannedDemand(const config::FleetModel& model) const;

  // Describes what the plan does not take into account, in lines for the
  // operator.
  std::vector<std::string> Troubles() const;

 private:
  plan::Snapshot With(const StandingPlan& plan, bool free) const;
  // Returns the machine of a GPU's UUID; empty if there is only one machine.
  std::string NodeOf(const std::string& gpu) const;
  // Returns the host memory of each machine where it is known: what the fleet
  // file says, else the least that a daemon there reports.
  std::map<std::string, double> Hosts() const;
  double HostShortfall(const config::FleetEngine& engine) const;
  bool Runs(const config::FleetEngine& engine) const;
  // Returns the number of the model's ranks: that of its first engine whose
  // GPUs are known.
  uint32_t RanksOf(const std::string& model) const;
  // Returns the `places` to which a model is pinned. If its pin is not known
  // (its machine is lost), the model stays where it serves, if it serves at
  // all.
  std::vector<GpuGroup> Pinned(
      const std::vector<GpuGroup>& places, const std::string& pin,
      const std::map<GpuGroup, std::string>& serving) const;
  // Subtracts the memory of an engine that rests on several GPUs, which the
  // planner does not decide, from what others may have.
  void SetAside(const config::FleetEngine& engine, plan::Snapshot* s) const;
  // Returns the bytes that an engine lacks on one of its GPUs.
  double GpuShortfall(const std::string& gpu, const GpuMemory& memory,
                      const config::FleetEngine& engine) const;

  const config::Fleet& fleet_;
  const StandingPlan& plan_;
  const std::map<std::string, GpuMemory>& gpus_;
  const std::map<std::string, Demand>& demand_;
};

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_OUTLOOK_H_
