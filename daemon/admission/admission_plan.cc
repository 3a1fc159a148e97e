// What AdmissionService does about the leader's plan: it goes by it, reports to
// the leader, and passes on what fsctl asks of a leader in this process.

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/admission/admission_service.h"
#include "daemon/wire/message.h"

namespace fineserve::admission {

using sched::ModelId;
using sched::ReplicaId;

namespace {

std::string WhoLeads(const PlanBoard& plans) {
  if (!plans.trouble().empty()) return plans.trouble();
  const wire::PlanT* plan = plans.plan();
  if (plan == nullptr || plan->leader.empty()) {
    return "no daemon leads: the fleet has no [planner]";
  }
  return absl::StrCat("the leader is ", plan->leader, "; steer it with --gpu ",
                      plan->leader);
}

}  // namespace

void AdmissionService::HandlePlan(const std::string& peer, uint64_t id,
                                  const wire::PlanNoticeT& notice) {
  if (notice.plan != nullptr) {
    const absl::Status s = daemon_.plans->Take(*notice.plan);
    // The report, which follows, says which plan is known.
    if (!s.ok()) Refuse(peer, id, std::string(s.message()));
    UpdateEngines();
  }
  Deliver(peer, wire::Encode(epoch_, id, Report()));
}

void AdmissionService::HandleSteer(const std::string& peer, uint64_t id,
                                   const wire::SteerT& steer) {
  LeaderSeat* const leader = daemon_.plans->leader();
  if (leader == nullptr) {
    Refuse(peer, id, WhoLeads(*daemon_.plans));
    return;
  }
  if (const absl::Status s = leader->Steer(steer); !s.ok()) {
    Refuse(peer, id, std::string(s.message()));
    return;
  }
  Deliver(peer, wire::Encode(epoch_, id, wire::DoneT()));
}

wire::ReportT AdmissionService::Report() const {
  wire::ReportT report;
  const GpuFacts gpu = daemon_.ask_gpu();
  report.gpu = gpu_;
  report.memory_bytes = gpu.memory_bytes;
  report.pool_bytes = gpu.pool_bytes;
  report.used_bytes = gpu.used_bytes;
  report.plan_number = daemon_.plans->newest().number();
  report.proxies = KnowsWhatRuns() ? static_cast<uint32_t>(peers_.size()) : 0;
  demand_.Tell(&report);
  const auto figures = scheduler_.Engines(Now());
  for (uint32_t i = 0; i < engines_.size(); ++i) {
    auto told = std::make_unique<wire::EngineReportT>();
    told->name = engines_[i].name;
    told->serves = Serves(engines_[i].name);
    const auto known = figures.find(ReplicaId{i});
    if (known != figures.end()) told->running = known->second.running;
    report.engines.push_back(std::move(told));
  }
  return report;
}

wire::PlanStateT AdmissionService::PlanState() const {
  wire::PlanStateT state;
  if (const LeaderSeat* leader = daemon_.plans->leader()) {
    leader->Describe(&state);
    state.leads = true;
  } else if (!daemon_.plans->trouble().empty()) {
    state.troubles.push_back(daemon_.plans->trouble());
  }
  if (const wire::PlanT* plan = daemon_.plans->plan()) {
    state.plan = std::make_unique<wire::PlanT>(*plan);
  }
  return state;
}

bool AdmissionService::Ends(ModelId model) const {
  bool any = false;
  for (const Engine& engine : engines_) {
    if (engine.model != model) continue;
    any = true;
    if (!daemon_.plans->newest().Ends(engine.name)) return false;
  }
  return any;
}

void AdmissionService::SendAway() {
  if (daemon_.plans->plan() == nullptr) return;
  std::set<ModelId> leave;
  for (const auto& [name, model] : models_) {
    const bool waits = scheduler_.Figures(model).queued > 0;
    if (waits && Ends(model)) leave.insert(model);
  }
  if (leave.empty()) return;
  std::set<sched::RequestId> waiting;  // in the order in which they came
  for (const sched::RequestView& r : scheduler_.Requests()) {
    if (!r.engine && leave.count(r.model) > 0) waiting.insert(r.id);
  }
  for (const sched::RequestId id : waiting) {
    scheduler_.Cancel(id);
    sched::Decision refusal;
    refusal.id = id;
    refusal.reason = sched::Reason::kNoEngine;
    Tell(refusal);
  }
}

}  // namespace fineserve::admission
