// FleetSupervisor's change to another fleet.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/up/fleet_check.h"
#include "tools/up/fleet_supervisor.h"

namespace fineserve::fsctl {
namespace {

// Returns the engines that must be started again.
std::vector<std::string> ToRestart(const config::FleetDescription& before,
                                   const config::FleetDescription& after) {
  std::vector<std::string> names;
  for (const auto& change : config::Differences(before, after)) {
    if (config::NeedsRestart(change)) names.push_back(change.Engine());
  }
  return names;
}

}  // namespace

void FleetSupervisor::Take(FleetToRun fleet, uint64_t drain_ns) {
  const std::vector<std::string> restart = ToRestart(written_, fleet.written);
  written_ = std::move(fleet.written);
  is_planned_ = fleet.fleet.planner.on;
  std::vector<std::string> gpus = GpusOfPlaces(fleet.fleet);
  if (gpus != planned_gpus_) {
    planned_gpus_ = std::move(gpus);
    follower_ =
        std::make_unique<PlanFollower>(finding::RuntimeFolder(), planned_gpus_);
  }
  std::vector<std::string> stay;
  for (config::FleetEngine& spec : fleet.fleet.engines) {
    if (spec.command.empty()) continue;
    stay.push_back(spec.name);
    const bool must_restart =
        std::find(restart.begin(), restart.end(), spec.name) != restart.end();
    TakeEngine(std::move(spec), must_restart, drain_ns);
  }
  for (Engine& engine : engines_) {
    if (!engine.is_in_fleet ||
        std::find(stay.begin(), stay.end(), engine.spec.name) != stay.end()) {
      continue;
    }
    Tell("has left the fleet: drain and stop", &engine);
    engine.is_in_fleet = false;
    engine.wish = Wish::kStop;
    EndStopped(&engine);
    engine.next.reset();
    BeginRest(&engine, drain_ns);
  }
  Tell(absl::StrCat("took the fleet again: ", stay.size(), " engines"));
}

void FleetSupervisor::TakeEngine(config::FleetEngine spec, bool must_restart,
                                 uint64_t drain_ns) {
  Engine* engine = Find(spec.name);
  Wish wish = WishOf(plan_, spec);
  if (engine != nullptr && engine->is_in_fleet && engine->spec.on_request &&
      spec.on_request) {
    wish = engine->wish;
  }
  if (engine == nullptr) {
    engines_.push_back({std::move(spec)});
    engines_.back().wish = wish;
    Tell("added to the fleet", &engines_.back());
    return;
  }
  const bool was_away = !engine->is_in_fleet;  // it is still ending
  engine->is_in_fleet = true;
  engine->wish = wish;
  const bool runs = engine->life.runs();
  if (runs && (must_restart || was_away || engine->rests)) {
    engine->next = std::move(spec);
  } else {
    engine->spec = std::move(spec);
  }
  if (!must_restart) return;
  Tell("changed in the fleet: drain and start again", engine);
  BeginRest(engine, drain_ns);
}

void FleetSupervisor::BeginRest(Engine* engine, uint64_t drain_ns) {
  if (!engine->life.runs()) {
    engine->life = SupervisedEngine();  // due at once, even if given up before
    return;
  }
  engine->rests = true;
  engine->may_go_on = false;
  engine->end_ns = NowNs() + drain_ns;
}

absl::Status FleetSupervisor::CheckNames(
    const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    const Engine* engine = Find(name);
    if (engine != nullptr && engine->is_in_fleet) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("no engine \"", name, "\" is started by this fsctl up"));
  }
  return absl::OkStatus();
}

absl::Status FleetSupervisor::CheckStartable(
    const std::vector<std::string>& names) const {
  if (const absl::Status s = CheckNames(names); !s.ok()) return s;
  for (const std::string& name : names) {
    const Engine* engine = Find(name);
    if (engine->wish == Wish::kRun || engine->life.runs() ||
        engine->stopped_ns) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("engine \"", name, "\" does not run, since ",
                     engine->spec.on_request ? "no request waits for it"
                                             : "the plan does not want it"));
  }
  return absl::OkStatus();
}

void FleetSupervisor::EndStopped(Engine* engine) const {
  if (!engine->stopped_ns) return;
  engine->stopped_ns.reset();
  register_->EndStopped(engine->spec.name);
}

absl::Status FleetSupervisor::Restart(const std::vector<std::string>& names,
                                      uint64_t drain_ns) {
  if (const absl::Status s = CheckStartable(names); !s.ok()) return s;
  for (const std::string& name : names) {
    Engine* engine = Find(name);
    Tell("restart: drain and start again", engine);
    EndStopped(engine);
    BeginRest(engine, drain_ns);
  }
  return absl::OkStatus();
}

absl::Status FleetSupervisor::StopEngines(const std::vector<std::string>& names,
                                          uint64_t drain_ns) {
  if (const absl::Status s = CheckNames(names); !s.ok()) return s;
  for (const std::string& name : names) {
    Engine* engine = Find(name);
    if (engine->stopped_ns) continue;
    const uint64_t now_ns = NowNs();
    const absl::Status s = register_->SetStopped(name, now_ns);
    if (!s.ok()) return s;
    engine->stopped_ns = now_ns;
    Tell("stop: drain and stay stopped", engine);
    BeginRest(engine, drain_ns);
  }
  return absl::OkStatus();
}

absl::Status FleetSupervisor::StartEngines(
    const std::vector<std::string>& names) {
  if (const absl::Status s = CheckStartable(names); !s.ok()) return s;
  for (const std::string& name : names) {
    Engine* engine = Find(name);
    EndStopped(engine);
    if (engine->life.runs()) continue;
    Tell("start", engine);
    BeginRest(engine, 0);
  }
  return absl::OkStatus();
}

void FleetSupervisor::RollOrphans() {
  orphans_.Turn(NowNs());
  std::vector<OrphanRoll::Engine> engines;
  for (const Engine& engine : engines_) {
    if (!engine.is_in_fleet || engine.wish == Wish::kStop ||
        engine.stopped_ns) {
      continue;
    }
    engines.push_back({engine.spec.name, orphans_.Has(engine.life.pid()),
                       engine.life.state() == SupervisedEngine::State::kServing,
                       engine.rests});
  }
  const std::string next = roll_.Next(engines);
  if (next.empty()) return;
  Engine* engine = Find(next);
  Tell("is left in the pool of a former daemon: drain and start again", engine);
  BeginRest(engine, static_cast<uint64_t>(kUsualDrainS * 1e9));
}

}  // namespace fineserve::fsctl
