#include "daemon/cluster/oddities.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace fineserve::cluster {
namespace {

// The meaning of refused connections, by wire::ConnectionFault.
constexpr struct {
  const char* what;
  const char* cure;
} kRefusalWords[] = {
    {"of keys that are not trusted there",
     "fsctl keys trust there, if they are this fleet's"},
    {"that did not finish CURVE's handshake",
     "fsctl keys show there and fsctl keys trust at the others, if its keys "
     "were made new; otherwise see what connects to that port"},
    {"ended by a frame that was changed or repeated on its way",
     "see what is between the machines"},
};
static_assert(std::size(kRefusalWords) == wire::kConnectionFaults);

void AddOddities(const MachineRecord& machine, std::vector<Oddity>* oddities) {
  for (const DaemonRecord& d : machine.daemons) {
    const std::string who = absl::StrCat(machine.name, " (", d.gpu, "): ");
    for (size_t i = 0; i < d.refused.size(); ++i) {
      if (d.refused[i] == 0) continue;
      oddities->push_back({absl::StrCat(who, d.refused[i], " connections ",
                                        kRefusalWords[i].what),
                           kRefusalWords[i].cure});
    }
    if (d.plans_refused == 0) continue;
    oddities->push_back(
        {absl::StrCat(
             who, d.plans_refused,
             " plans were refused: they were older than the known one"),
         "nothing, if a leading machine slept or was cut off"});
  }
}

}  // namespace

std::vector<Oddity> OdditiesOf(const FleetView& view,
                               const std::string& machine) {
  std::vector<Oddity> oddities;
  for (const SeenMachine& seen : view.machines) {
    if (!machine.empty() && seen.record.name != machine) continue;
    AddOddities(seen.record, &oddities);
  }
  if (!machine.empty() && machine != view.machine) return oddities;
  if (view.strangers != 0) {
    oddities.push_back(
        {absl::StrCat(view.machine, ": ", view.strangers,
                      " answers of another etcd cluster were refused"),
         "correct etcd in [cluster] of the fleet file, or what answers there"});
  }
  if (view.fenced != 0) {
    oddities.push_back(
        {absl::StrCat(view.machine, ": etcd refused ", view.fenced,
                      " plans, as their term was over"),
         "nothing, if this machine slept or was cut off"});
  }
  return oddities;
}

}  // namespace fineserve::cluster
