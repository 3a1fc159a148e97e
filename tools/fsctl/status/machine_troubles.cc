#include "absl/strings/str_cat.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "tools/fsctl/status/troubles.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

void AddMachine(const cluster::SeenMachine& machine, const Moment& now,
                Findings* troubles) {
  const std::string name = Clean(machine.record.name);
  if (!machine.is_alive) {
    troubles->push_back(Trouble(
        true,
        absl::StrCat("machine ", name,
                     machine.is_lost ? " is lost: its models go elsewhere"
                                     : " is silent"),
        SecondsSince(now.monotonic_ns, machine.silent_ns),
        "see its link, its etcd and its fineserve-node; fsctl nodes shows all "
        "machines"));
    return;
  }
  for (const cluster::DaemonRecord& d : machine.record.daemons) {
    if (d.answers) continue;
    troubles->push_back(
        Trouble(true,
                absl::StrCat("machine ", name, ": no fineserved of ",
                             Clean(d.gpu), " answers"),
                -1, "fsctl status there says more"));
  }
}

}  // namespace

Findings TroublesOfMachines(const StatusInput& o) {
  Findings troubles;
  if (absl::IsNotFound(o.machines.status())) return troubles;
  const std::string trouble =
      cluster::TroubleOf(o.machines, o.now.monotonic_ns);
  if (!trouble.empty()) {
    const uint64_t since =
        cluster::TroubleSince(o.machines, o.now.monotonic_ns);
    troubles.push_back(Trouble(true, Clean(trouble),
                               SecondsSince(o.now.monotonic_ns, since),
                               "fsctl nodes shows more"));
  }
  if (!o.machines.ok()) return troubles;
  for (const cluster::SeenMachine& machine : o.machines->machines) {
    AddMachine(machine, o.now, &troubles);
  }
  for (const cluster::Oddity& odd : cluster::OdditiesOf(*o.machines, "")) {
    troubles.push_back(Trouble(false, Clean(odd.what), -1, odd.cure));
  }
  return troubles;
}

}  // namespace fineserve::fsctl
