#include "daemon/fineserved/start/daemon_fleet.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::server {
namespace {

config::FleetDescription DescriptionOf(const config::Config& config) {
  return config.fleet ? config::Describe(*config.fleet)
                      : config::FleetDescription();
}

// Notes the engines whose share of the pool changes, since a share is looked up
// only when an engine connects.
void NoteShares(const config::Fleet& before, const config::Fleet& now,
                std::vector<std::string>* notes) {
  for (const config::FleetEngine& engine : now.engines) {
    const config::FleetEngine* was = before.Engine(engine.name);
    if (was == nullptr || (was->floor_bytes == engine.floor_bytes &&
                           was->cap_bytes == engine.cap_bytes)) {
      continue;
    }
    notes->push_back(absl::StrCat("engine ", engine.name,
                                  ": its floor and cap hold from its next "
                                  "start on (fsctl restart ",
                                  engine.name, ")"));
  }
}

}  // namespace

std::vector<std::string> NotTaken(const config::Config& before,
                                  const config::Config& now) {
  std::vector<std::string> notes;
  if (now.max_pool_bytes != before.max_pool_bytes ||
      now.slab_bytes != before.slab_bytes || now.planes != before.planes ||
      now.gpu != before.gpu || now.runtime_dir != before.runtime_dir) {
    notes.emplace_back(
        "restart fineserved to change gpu, runtime_dir or the pool's max, slab "
        "and planes: ignored until then");
  }
  if (before.fleet && now.fleet) NoteShares(*before.fleet, *now.fleet, &notes);
  return notes;
}

void DaemonFleet::DescribeTo(apply::Answer* answer) const {
  answer->process = "fineserved";
  answer->pid = getpid();
  answer->gpu = gpu_;
  if (!config_->fleet) return;
  answer->fleet_path = config::FleetPath(config_->fleet_path);
  answer->fleet = DescriptionOf(*config_);
}

absl::StatusOr<config::FleetDescription> DaemonFleet::Read(
    std::vector<std::string>* notes) {
  absl::StatusOr<config::Config> config = read_();
  if (!config.ok()) return config.status();
  *notes = NotTaken(*config_, *config);
  found_ = *std::move(config);
  return DescriptionOf(*found_);
}

absl::Status DaemonFleet::TakeRead() {
  absl::Status s = take_(*std::move(found_));
  found_.reset();
  return s;
}

}  // namespace fineserve::server
