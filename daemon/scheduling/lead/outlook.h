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

// UUIDs of an engine's GPUs, ascending.
using GpuGroup = std::vector<std::string>;

// A GPU as its daemon reports it.
struct GpuMemory {
  double memory_bytes = 0;  // of the device
  double pool_bytes = 0;
  // The part of its machine's memory for processes and stores; 0: not known.
  double host_bytes = {};
  bool operator==(const GpuMemory&) const = default;
};

// Places that are off and have a process that may rest, by engine; true: it was
// to rest by the last decision, too.
using PlacesOff = std::map<std::string, bool>;

// The planner's input: the fleet, the demand on it and what runs, as
// daemon/scheduling/global takes it. Models are those of the fleet that have
// places, and those with engines that never move, if their sizes are known.
class Outlook {
 public:
  // All must outlive it. `gpus` by UUID; engines on others are not planned.
  Outlook(const config::Fleet& fleet, const StandingPlan& plan,
          const std::map<std::string, GpuMemory>& gpus,
          const std::map<std::string, Demand>& demand);

  // Every engine that serves is where it serves; the planner is free to choose
  // how many replicas a model gets, and their places.
  plan::Snapshot Free() const;
  // The same with as many replicas as serve now.
  plan::Snapshot AsItIs() const;
  // The same, if `off` did not serve and `on` did (engines; empty: none).
  plan::Snapshot After(const std::string& on, const std::string& off) const;

  // Running engines where they run, whatever they do there, and those that rest
  // beside them: of the places that are off, only these may. Pins count nothing
  // here: they say where a model serves.
  plan::Snapshot WhileOff(const PlacesOff& off) const;

  // The place of a model on these GPUs; null if it has none there.
  const config::FleetEngine* PlaceOn(const std::string& model,
                                     const GpuGroup& gpus) const;
  // The engine's GPUs; empty if one of them is not known.
  GpuGroup GpusOf(const config::FleetEngine& engine) const;
  // Engines of the model that serve by the plan, by their GPUs.
  std::map<GpuGroup, std::string> Serving(const std::string& model) const;

  // Bytes that the model's engine lacks where it lacks most, beside all that
  // runs there by the plan: on each of its GPUs weights, activations and
  // contexts have what the pool leaves and floors have the pool; processes have
  // the host memory. 0 or less: it fits. Resting engines give way.
  double Shortfall(const config::FleetEngine& engine) const;

  // The demand to plan for: the one that was seen, else the one that the fleet
  // file expects, else almost none.
  Demand PlannedDemand(const config::FleetModel& model) const;

  // Describes what the plan does not take into account, in lines for the
  // operator.
  std::vector<std::string> Troubles() const;

 private:
  plan::Snapshot With(const StandingPlan& plan, bool free) const;
  // The machine of a GPU's UUID; empty: there is one.
  std::string NodeOf(const std::string& gpu) const;
  // The host memory of each machine where it is known: what the fleet file
  // says, else the least that a daemon there reports.
  std::map<std::string, double> Hosts() const;
  double HostShortfall(const config::FleetEngine& engine) const;
  bool Runs(const config::FleetEngine& engine) const;
  // The model's ranks: those of its first engine whose GPUs are known.
  uint32_t RanksOf(const std::string& model) const;
  // Those of `places` to which a model is pinned. If its pin is not known (that
  // machine is lost), it stays where it serves, if anywhere.
  std::vector<GpuGroup> Pinned(
      const std::vector<GpuGroup>& places, const std::string& pin,
      const std::map<GpuGroup, std::string>& serving) const;
  // Takes what an engine that rests on several GPUs keeps, which the planner
  // does not decide, from what others may have.
  void SetAside(const config::FleetEngine& engine, plan::Snapshot* s) const;
  // Bytes that an engine lacks on one of its GPUs.
  double GpuShortfall(const std::string& gpu, const GpuMemory& memory,
                      const config::FleetEngine& engine) const;

  const config::Fleet& fleet_;
  const StandingPlan& plan_;
  const std::map<std::string, GpuMemory>& gpus_;
  const std::map<std::string, Demand>& demand_;
};

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_OUTLOOK_H_
