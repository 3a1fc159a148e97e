#include "tools/lab/sim/lead/planning.h"

#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fineserved/admission/gpu_report.h"

namespace fineserve::sim {
namespace {

constexpr char kProxy[] = "proxy";

// The GPU's name; a fleet of one GPU does not need to name it.
std::string UuidOf(const std::string& name) {
  return name.empty() ? "GPU" : name;
}

std::vector<std::string> ModelNames(const config::Fleet& fleet) {
  std::vector<std::string> names;
  for (const config::FleetModel& m : fleet.models) names.push_back(m.name);
  return names;
}

}  // namespace

Planning::Planning(const PlanningSetup& setup, Gpus* gpus)
    : setup_(setup),
      gpus_(gpus),
      demand_(&clock_),
      totals_(ModelNames(setup.fleet)),
      leader_(
          setup.fleet, UuidOf(setup.gpu_names[0]), lead::PlanStore::Unkept(),
          &clock_, [this] { return absl::StrCat(clock_.NowNs()); },
          std::launch::deferred),
      hand_(setup, gpus) {
  for (const auto& gpu : *gpus_) gpu->FollowPlan(&at_daemons_, 0);
}

void Planning::Second(Micros now) {
  clock_.Set(now);
  Greet();
  hand_.Turn(at_daemons_.plan(), now);
  Lead(now);
}

// The proxy reports its counts and hears the plan. Here, daemons learn which
// engines serve as soon as the hand does, without this message.
void Planning::Greet() {
  wire::HelloT hello;
  demand_.Tell(&hello);
  totals_.Count(kProxy, hello);
  if (const wire::PlanT* plan = at_daemons_.plan()) {
    at_proxy_.Take(*plan).IgnoreError();  // the same again, or a newer one
  }
}

wire::ReportT Planning::ReportOf(uint32_t gpu, Micros now) const {
  const Gpu& its = *(*gpus_)[gpu];
  const auto serves = [&](const std::string& name) {
    for (uint32_t i = 0; i < its.engines().size(); ++i) {
      if (its.engines()[i].name == name) return its.Runs(i);
    }
    return false;
  };
  wire::ReportT report =
      admission::ReportOf(UuidOf(setup_.gpu_names[gpu]),
                          {setup_.memory_bytes, setup_.pool_bytes, 0},
                          its.engines(), serves, its.scheduler(), now);
  for (const auto& engine : report.engines) {
    engine->here = hand_.IsHere(engine->name);
  }
  report.plan_number = at_daemons_.number();
  report.proxies = 1;
  totals_.Tell(&report);
  return report;
}

void Planning::Lead(Micros now) {
  const absl::optional<lead::Move> before = leader_.plan().move;
  leader_.Tick();
  CountMoves(before);
  RecordSteps(now);
  const std::unique_ptr<wire::PlanT> reported = leader_.PlanToSend();
  if (reported != nullptr && reported->number > at_daemons_.number()) {
    at_daemons_.Take(*reported).IgnoreError();
    for (const auto& gpu : *gpus_) gpu->FollowPlan(&at_daemons_, now);
  }
  for (uint32_t gpu = 0; gpu < gpus_->size(); ++gpu) {
    leader_.Heard(ReportOf(gpu, now));
  }
}

void Planning::CountMoves(const absl::optional<lead::Move>& before) {
  const absl::optional<lead::Move>& after = leader_.plan().move;
  if (after == before) return;
  record_.moves += after.has_value();
  if (!before) return;
  const std::string& to = before->to;
  record_.moves_undone +=
      !to.empty() && leader_.plan().StateOf(to) != lead::PlaceState::kServe;
}

// Records the leader's new history entries since the last call.
void Planning::RecordSteps(Micros now) {
  if (leader_.plan().number == record_.last_number) return;
  wire::PlanStateT state;
  leader_.Describe(&state);
  for (const std::string& line : state.history) {
    const auto reported = nlohmann::json::parse(line);
    const auto number = reported.at("number").get<uint64_t>();
    if (number <= record_.last_number) continue;
    record_.steps.push_back(
        {now, number, reported.at("why").get<std::string>()});
  }
  record_.last_number = leader_.plan().number;
}

void Planning::Freeze() {
  wire::SteerT freeze;
  freeze.freeze = true;
  // Its store cannot fail.
  leader_.Steer(freeze).IgnoreError();
}

bool Planning::IsAtRest() const {
  const uint64_t number = leader_.plan().number;
  return number != 0 && !leader_.plan().move && at_proxy_.number() == number &&
         hand_.HasDone(number);
}

PlanRecord Planning::TakeRecord() {
  wire::PlanStateT state;
  leader_.Describe(&state);
  record_.troubles = state.troubles;
  record_.failed_starts = hand_.failed_starts();
  return std::move(record_);
}

}  // namespace fineserve::sim
