// AdmissionService's part in the leader's plan: it applies the plan, reports to
// the leader, and passes requests of fsctl to a leader in this process.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fineserved/admission/admission_service.h"
#include "daemon/fineserved/admission/waiting_in_vain.h"

namespace fineserve::admission {

namespace {

std::string WhoLeads(const PlanBoard& plans) {
  if (!plans.trouble().empty()) return plans.trouble();
  const wire::PlanT* plan = plans.newest().plan();
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
    // The report that follows says which plan is known.
    if (!s.ok()) Refuse(peer, id, std::string(s.message()));
    UpdateEngines();
    BringStarting();
  }
  Deliver(peer, wire::Encode(epoch_, id, Report()));
}

// Brings back the processes that stayed off the GPU while the plan had their
// place off. They need not start again.
void AdmissionService::BringStarting() {
  for (const Engine& engine : engines_) {
    const bool starts = daemon_.plans->newest().Starts(engine.name);
    if (starts && IsAway(engine.name)) daemon_.need(engine.name);
  }
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
  wire::ReportT report = ReportOf(
      gpu_, daemon_.ask_gpu(), engines_,
      [this](const std::string& engine) { return proxies_.Serves(engine); },
      scheduler_, Now());
  for (const auto& engine : report.engines) {
    engine->here = daemon_.residence(engine->name).has_value();
    engine->process_bytes = daemon_.process_bytes(engine->name);
  }
  report.plan_number = daemon_.plans->newest().number();
  report.plan_term = daemon_.plans->newest().term();
  report.plans_refused = daemon_.plans->refused();
  report.drained = daemon_.drained->empties();
  report.proxies =
      KnowsWhatRuns() ? static_cast<uint32_t>(proxies_.all().size()) : 0;
  report.plan_of_proxies = proxies_.OldestPlan();
  demand_.Tell(&report);
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
  if (const wire::PlanT* plan = daemon_.plans->newest().plan()) {
    state.plan = std::make_unique<wire::PlanT>(*plan);
  }
  for (const Engine& engine : engines_) {
    if (IsAway(engine.name)) state.away.push_back(engine.name);
  }
  return state;
}

void AdmissionService::SendAway() {
  const auto takes_none = [this](const std::string& engine) {
    return daemon_.drained->Has(engine) || proxies_.IsStopped(engine) ||
           daemon_.plans->newest().Ends(engine);
  };
  for (const sched::RequestId id :
       WaitingInVain(engines_, takes_none, scheduler_)) {
    scheduler_.Cancel(id);
    sched::Decision refusal;
    refusal.id = id;
    refusal.refusal = sched::Refusal::kNoEngine;
    Tell(refusal);
  }
}

}  // namespace fineserve::admission
