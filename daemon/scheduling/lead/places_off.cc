#include "daemon/scheduling/lead/places_off.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "daemon/scheduling/global/make_plan.h"

namespace fineserve::lead {
namespace {

bool Rests(const plan::Plan& plan, const plan::PlaceOff& place) {
  return std::any_of(plan.resting.begin(), plan.resting.end(),
                     [&](const plan::RestingPlace& r) {
                       return r.model == place.model && r.gpu == place.gpu;
                     });
}

// Returns null if the GPU's host memory is not known.
const plan::HostUse* HostOf(const plan::Snapshot& s, const plan::Plan& plan,
                            const std::string& gpu) {
  for (const plan::Gpu& g : s.gpus) {
    if (g.name != gpu) continue;
    for (const plan::HostUse& host : plan.hosts) {
      if (host.node == g.node) return &host;
    }
  }
  return nullptr;
}

// Names the hosts whose memory is exceeded. Engines already run there, so
// nothing refuses them.
void NameFullHosts(const plan::Plan& plan, Rest* rest) {
  for (const plan::HostUse& host : plan.hosts) {
    if (host.process_bytes <= host.host_bytes) continue;
    rest->troubles.push_back(absl::StrFormat(
        "%s: engines' processes take %.1f GiB of %.1f GiB of host memory; let "
        "fewer engines run there, or correct process or host_memory in the "
        "fleet file",
        plan::NodeTitle(host.node), host.process_bytes / plan::kGib,
        host.host_bytes / plan::kGib));
  }
}

}  // namespace

absl::StatusOr<Rest> DecideRest(const config::Fleet& fleet,
                                const StandingPlan& plan,
                                const std::map<std::string, GpuMemory>& gpus,
                                const std::map<std::string, Demand>& demand,
                                const PlacesOff& off) {
  Rest rest;
  const Outlook outlook(fleet, plan, gpus, demand);
  const plan::Snapshot snapshot = outlook.WhileOff(off);
  for (const auto& [engine, rests] : off) {
    if (plan.StateOf(engine) == PlaceState::kOff) rest.stays.insert(engine);
  }
  if (snapshot.nodes.empty() || snapshot.models.empty()) return rest;
  const auto beside = plan::RestBeside(snapshot, plan::Options());
  if (!beside.ok()) return beside.status();
  NameFullHosts(*beside, &rest);
  for (const plan::PlaceOff& place : *snapshot.off) {
    const config::FleetEngine* e = outlook.PlaceOn(place.model, {place.gpu});
    if (e == nullptr || Rests(*beside, place) ||
        HostOf(snapshot, *beside, place.gpu) == nullptr) {
      continue;
    }
    rest.ends.insert(e->name);
    rest.stays.erase(e->name);
  }
  return rest;
}

}  // namespace fineserve::lead
