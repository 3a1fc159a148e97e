#include "daemon/proxy/admission/fleet_admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/wire/message.h"

namespace fineserve::proxy {
namespace {

// What the client is told after two refusals. That one GPU has no engine says
// nothing once another has one, which gave its reason.
Verdict MoreTelling(Verdict before, Verdict now) {
  const bool says_nothing = now.refusal == Refusal::kNoEngine;
  if (says_nothing && before.refusal != Refusal::kNone) return before;
  return now;
}

}  // namespace

FleetAdmission::FleetAdmission(std::shared_ptr<const config::Fleet> fleet,
                               const Clock* clock)
    : clock_(clock),
      demand_(clock),
      errors_(clock, [this](const std::string& engine) {
        const DaemonAdmission* its = Of(engine);
        return its != nullptr && its->IsHealthy(engine) && LetsIn(engine);
      }) {
  SetFleet(std::move(fleet));
}

void FleetAdmission::ForEachGpu(OnGpu on_gpu) {
  on_gpu_ = std::move(on_gpu);
  for (auto& [gpu, part] : parts_) on_gpu_(gpu, part.admission.get());
}

void FleetAdmission::SetFleet(std::shared_ptr<const config::Fleet> fleet) {
  const bool was_planned = fleet_ != nullptr && fleet_->planner.on;
  fleet_ = std::move(fleet);
  if (was_planned && !fleet_->planner.on) plan_.Forget();
  errors_.SetFleet(fleet_);
  for (const config::FleetEngine& engine : fleet_->engines) {
    parts_.try_emplace(engine.gpu);
  }
  // A GPU removed from the fleet loses its engines; its running requests
  // finish.
  for (auto& [gpu, part] : parts_) {
    auto own = std::make_shared<const config::Fleet>(fleet_->OfGpu(gpu));
    part.due.clear();
    const bool is_new = part.admission == nullptr;
    if (is_new) {
      part.admission =
          std::make_unique<DaemonAdmission>(std::move(own), clock_);
      part.admission->SetDemand(&demand_);
      part.admission->SetErrors(&errors_);
    } else {
      part.admission->SetFleet(std::move(own));
    }
    // Without a planner no plan is learnt again from a daemon that has not yet
    // heard that there is none.
    part.admission->SetPlan(fleet_->planner.on ? &plan_ : nullptr);
    if (is_new) on_gpu_(gpu, part.admission.get());
  }
}

absl::optional<Candidate> FleetAdmission::Consider(
    Part* part, const AdmissionRequest& request) const {
  const DaemonAdmission& admission = *part->admission;
  ModelOnGpu standing;
  double outstanding = 0;
  for (const config::FleetEngine& engine : admission.engines()) {
    if (engine.model != request.model) continue;
    standing.Add(
        plan_.LetsIn(engine.name),
        engine.name != request.avoid_engine && admission.Serves(engine.name),
        plan_.TargetRate(engine.name, engine.target_rate));
    outstanding += static_cast<double>(admission.Outstanding(engine.name));
  }
  if (!standing.any()) return absl::nullopt;
  const double cost = fleet_->proxy.least_load
                          ? outstanding
                          : admission.PredictedWaitUs(request.model);
  return Candidate{0, standing.Trouble(admission.HasDaemon()), cost,
                   standing.target_rate(), &part->due[request.model]};
}

std::vector<DaemonAdmission*> FleetAdmission::InOrder(
    const AdmissionRequest& request) {
  std::vector<DaemonAdmission*> asked;
  std::vector<Candidate> candidates;
  for (auto& [gpu, part] : parts_) {
    const auto candidate = Consider(&part, request);
    if (!candidate) continue;
    candidates.push_back(*candidate);
    candidates.back().place = asked.size();
    asked.push_back(part.admission.get());
  }
  OrderReplicas(&candidates);
  std::vector<DaemonAdmission*> order;
  for (const Candidate& c : candidates) order.push_back(asked[c.place]);
  return order;
}

void FleetAdmission::Submit(const AdmissionRequest& request,
                            OnVerdict on_verdict) {
  const size_t model = fleet_->ModelIndex(request.model);
  if (model < fleet_->models.size()) {
    demand_.Submitted(request, fleet_->models[model]);
  }
  std::vector<DaemonAdmission*> order = InOrder(request);
  if (order.empty()) {
    demand_.Refused(request.id);
    Verdict verdict;
    verdict.refusal = Refusal::kNoEngine;
    verdict.why = absl::StrCat("no engine serves ", request.model);
    on_verdict(std::move(verdict));
    return;
  }
  Try(request, std::move(order), Verdict(), std::move(on_verdict));
}

void FleetAdmission::Try(const AdmissionRequest& request,
                         std::vector<DaemonAdmission*> order, Verdict refusal,
                         OnVerdict on_verdict) {
  DaemonAdmission* const first = order.front();
  order.erase(order.begin());
  asked_[request.id] = first;
  first->Submit(request, [this, request, rest = std::move(order),
                          refusal = std::move(refusal),
                          on_verdict = std::move(on_verdict)](Verdict verdict) {
    if (!verdict.admitted) {
      verdict = MoreTelling(refusal, std::move(verdict));
      if (!rest.empty()) {
        Try(request, rest, std::move(verdict), on_verdict);
        return;
      }
      asked_.erase(request.id);
      demand_.Refused(request.id);
    }
    on_verdict(std::move(verdict));
  });
}

DaemonAdmission* FleetAdmission::Of(uint64_t id) const {
  const auto found = asked_.find(id);
  return found == asked_.end() ? nullptr : found->second;
}

void FleetAdmission::Cancel(uint64_t id) {
  if (DaemonAdmission* const its = Of(id)) its->Cancel(id);
  asked_.erase(id);
  demand_.Left(id);
}

void FleetAdmission::FirstToken(uint64_t id) {
  demand_.FirstToken(id);
  if (DaemonAdmission* const its = Of(id)) its->FirstToken(id);
}

void FleetAdmission::Progress(uint64_t id, uint32_t output_tokens) {
  if (DaemonAdmission* const its = Of(id)) its->Progress(id, output_tokens);
}

void FleetAdmission::Finished(uint64_t id, uint32_t prompt_tokens,
                              uint32_t output_tokens, Outcome outcome) {
  demand_.Finished(id, output_tokens, outcome);
  if (DaemonAdmission* const its = Of(id)) {
    its->Finished(id, prompt_tokens, output_tokens, outcome);
  }
  asked_.erase(id);
}

DaemonAdmission* FleetAdmission::Of(const std::string& engine) const {
  const config::FleetEngine* known = fleet_->Engine(engine);
  return known == nullptr ? nullptr : parts_.at(known->gpu).admission.get();
}

void FleetAdmission::Sent(const std::string& engine) {
  if (errors_.Sent(engine)) TellServing();
}

void FleetAdmission::Answered(const std::string& engine) {
  if (DaemonAdmission* const its = Of(engine)) its->Answered(engine);
  if (errors_.Answered(engine)) TellServing();
}

// One broken answer says little of the engine; its /health says more.
void FleetAdmission::Failed(const std::string& engine, EngineError error) {
  if (errors_.Failed(engine, error)) TellServing();
  Suspect(engine);
}

void FleetAdmission::Suspect(const std::string& engine) {
  if (DaemonAdmission* const its = Of(engine)) its->Suspect(engine);
}

EngineSigns FleetAdmission::Signs(const std::string& engine) const {
  const DaemonAdmission* const its = Of(engine);
  return its == nullptr ? EngineSigns() : its->Signs(engine);
}

void FleetAdmission::TellServing() {
  for (auto& [gpu, part] : parts_) part.admission->TellServing();
}

bool FleetAdmission::Serves(const std::string& engine) const {
  const DaemonAdmission* const its = Of(engine);
  return its != nullptr && its->Serves(engine);
}

bool FleetAdmission::Ready() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) {
    return !part.second.admission->engines().empty() &&
           part.second.admission->Ready();
  });
}

std::map<std::string, bool> FleetAdmission::Daemons() const {
  std::map<std::string, bool> daemons;
  for (const auto& [gpu, part] : parts_) {
    if (part.admission->engines().empty()) continue;
    daemons[gpu] = part.admission->HasDaemon();
  }
  return daemons;
}

uint64_t FleetAdmission::Unscheduled() const {
  uint64_t requests = 0;
  for (const auto& [gpu, part] : parts_) {
    requests += part.admission->Unscheduled();
  }
  return requests;
}

void FleetAdmission::Rest(const std::vector<std::string>& engines,
                          uint64_t until_ns) {
  for (auto& [gpu, part] : parts_) part.admission->Rest(engines, until_ns);
}

std::map<std::string, uint64_t> FleetAdmission::RunningByEngine() const {
  std::map<std::string, uint64_t> running;
  for (const auto& [gpu, part] : parts_) {
    for (const auto& [engine, requests] : part.admission->RunningByEngine()) {
      running[engine] += requests;
    }
  }
  return running;
}

}  // namespace fineserve::proxy
