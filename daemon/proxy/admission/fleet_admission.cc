#include "daemon/proxy/admission/fleet_admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::proxy {
namespace {

// True if the refusal says nothing about the other GPUs: this GPU only lacks an
// engine or a daemon.
bool SaysNothing(Refusal refusal) {
  return refusal == Refusal::kNoEngine || refusal == Refusal::kDaemonAway;
}

// Returns the refusal that has a reason, if one has, so that the client gets
// the reason.
Verdict MoreTelling(Verdict before, Verdict now) {
  return SaysNothing(now.refusal) && !SaysNothing(before.refusal) ? before
                                                                  : now;
}

}  // namespace

FleetAdmission::FleetAdmission(std::shared_ptr<const config::Fleet> fleet,
                               const Clock* clock)
    : clock_(clock),
      demand_(clock),
      errors_(clock,
              [this](const std::string& engine) {
                const GpuAdmission* its = Of(engine);
                return its != nullptr && its->states().IsHealthy(engine) &&
                       LetsIn(engine);
              }),
      stopped_(
          clock, [this](const auto& engine) { return Serves(engine); },
          [this](const auto& engine) { return IsStoppedByHand(engine); }) {
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
  stopped_.SetFleet(fleet_);
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
      part.admission = std::make_unique<GpuAdmission>(std::move(own), clock_);
      part.admission->SetDemand(&demand_);
      part.admission->states().SetErrors(&errors_);
    } else {
      part.admission->SetFleet(std::move(own));
    }
    // Without a planner, a daemon that has not yet heard of that must not bring
    // the plan back.
    part.admission->SetPlan(fleet_->planner.on ? &plan_ : nullptr);
    if (is_new) on_gpu_(gpu, part.admission.get());
  }
}

// The cost of a GPU is its wait, less the time that cached tokens of the prompt
// save, plus a part of the time that it recently spent on prefill. Among the
// GPUs to which the model would have to come back, the one with the least
// outstanding work takes the request.
absl::optional<Candidate> FleetAdmission::Consider(
    Part* part, const AdmissionRequest& request) const {
  const GpuAdmission& admission = *part->admission;
  const ModelWaits& waits = admission.waits();
  const uint32_t known = part->prefixes.Known(request.model, request.prefix,
                                              request.prompt_tokens);
  const double recent = RecentPrefill::kShare *
                        part->prefilled[request.model].Tokens(clock_->NowNs());
  ModelOnGpu standing;
  double outstanding = 0, of_gpu = 0;
  for (const config::FleetEngine& engine : admission.engines()) {
    const auto tokens = static_cast<double>(admission.Outstanding(engine.name));
    of_gpu += tokens;
    if (engine.model != request.model) continue;
    standing.Add(plan_.LetsIn(engine.name),
                 engine.name != request.avoid_engine &&
                     admission.states().Serves(engine.name),
                 plan_.TargetRate(engine.name, engine.target_rate));
    outstanding += tokens;
  }
  if (!standing.any()) return absl::nullopt;
  // Where no daemon decides, the wait is unknown, and the outstanding tokens
  // count instead.
  const double cost = fleet_->proxy.least_load || !admission.HasDaemon()
                          ? outstanding - known
                          : waits.PredictedUs(request.model) +
                                waits.PrefillUs(request.model, recent - known);
  const bool is_away = waits.IsAway(request.model);
  return Candidate{.trouble = standing.Trouble(admission.HasDaemon(), is_away),
                   .full = waits.IsFull(request.model),
                   .cost = cost,
                   .load = is_away ? of_gpu : outstanding,
                   .target_rate = standing.target_rate(),
                   .due = &part->due[request.model]};
}

FleetAdmission::Deciding FleetAdmission::Order(const AdmissionRequest& request,
                                               OnVerdict on_verdict) {
  std::vector<Part*> parts;
  std::vector<Candidate> candidates;
  for (auto& [gpu, part] : parts_) {
    const auto candidate = Consider(&part, request);
    if (!candidate) continue;
    candidates.push_back(*candidate);
    candidates.back().place = parts.size();
    parts.push_back(&part);
  }
  const bool charged = !parts.empty() && OrderReplicas(&candidates);
  Verdict refusal;
  refusal.refusal = Refusal::kNoEngine;
  if (parts.empty()) {
    refusal.why = absl::StrCat("no engine serves ", request.model);
  }
  return {request, std::move(parts), TiedRequest(candidates, charged),
          std::move(refusal), std::move(on_verdict)};
}

void FleetAdmission::Submit(const AdmissionRequest& request,
                            OnVerdict on_verdict) {
  stopped_.Asked(request.model);
  if (stopped_.IsStopped(request.model)) {
    AwaitStart(request, std::move(on_verdict));
  } else {
    Decide(request, std::move(on_verdict));
  }
}

void FleetAdmission::AwaitStart(const AdmissionRequest& request,
                                OnVerdict on_verdict) {
  const uint64_t id = request.id;
  stopped_.Add(request,
               [this, id, on_verdict = std::move(on_verdict)](Verdict verdict) {
                 if (!verdict.admitted) demand_.Refused(id);
                 on_verdict(std::move(verdict));
               });
}

void FleetAdmission::TakeStranded() {
  std::vector<uint64_t> stranded;
  for (const auto& [id, deciding] : deciding_) {
    const std::string& model = deciding.request.model;
    stopped_.Asked(model);
    if (stopped_.IsStopped(model)) stranded.push_back(id);
  }
  for (const uint64_t id : stranded) {
    const auto place = deciding_.find(id);
    if (place == deciding_.end()) continue;
    const Deciding taken = std::move(place->second);
    deciding_.erase(place);
    for (Part* part : taken.parts) part->admission->Cancel(id);
    AwaitStart(taken.request, taken.on_verdict);
  }
}

void FleetAdmission::Tick() {
  if (!stopped_.any()) return;
  TakeStranded();
  for (auto& [request, on_verdict] : stopped_.Turn(RunningByEngine())) {
    Decide(request, std::move(on_verdict));
  }
}

void FleetAdmission::Decide(const AdmissionRequest& request,
                            OnVerdict on_verdict) {
  if (request.is_forwarded) {
    Verdict verdict;
    verdict.admitted = true;
    on_verdict(std::move(verdict));
    return;
  }
  const size_t model = fleet_->ModelIndex(request.model);
  if (model < fleet_->models.size()) {
    demand_.Submitted(request, fleet_->models[model]);
  }
  deciding_.emplace(request.id, Order(request, std::move(on_verdict)));
  GoOn(request.id);
}

// Each call of Ask may end the request, and its Deciding with it.
void FleetAdmission::GoOn(uint64_t id) {
  auto place = deciding_.find(id);
  while (place != deciding_.end()) {
    const auto next = place->second.tied.Next();
    if (!next) break;
    Ask(place->second, *next);
    place = deciding_.find(id);
  }
  if (place == deciding_.end() || !place->second.tied.over()) return;
  const Deciding refused = std::move(place->second);
  deciding_.erase(place);
  if (SaysNothing(refused.refusal.refusal) &&
      stopped_.IsStopped(refused.request.model)) {
    AwaitStart(refused.request, refused.on_verdict);
    return;
  }
  demand_.Refused(id);
  refused.on_verdict(refused.refusal);
}

void FleetAdmission::Ask(const Deciding& deciding, size_t place) {
  const uint64_t id = deciding.request.id;
  GpuAdmission::Tie tie;
  tie.asked_before = !deciding.tied.IsFirst(place);
  if (deciding.parts.size() > 1) {
    tie.on_lost = [this, id, place] { return Lost(id, place); };
  }
  if (deciding.tied.MayAskMore()) {
    tie.on_waits = [this, id, place] {
      const auto waits = deciding_.find(id);
      if (waits == deciding_.end()) return;
      waits->second.tied.Heard(place, TiedRequest::Answer::kWaits);
      GoOn(id);
    };
  }
  // Passes a copy of the request, since the call may end the request.
  deciding.parts[place]->admission->Submit(
      deciding.request,
      [this, id, place](Verdict verdict) {
        Heard(id, place, std::move(verdict));
      },
      std::move(tie));
}

void FleetAdmission::Heard(uint64_t id, size_t place, Verdict verdict) {
  const auto known = deciding_.find(id);
  if (known == deciding_.end()) return;
  if (verdict.admitted) return Admit(id, place, std::move(verdict));
  Deciding& deciding = known->second;
  deciding.tied.Heard(place, SaysNothing(verdict.refusal)
                                 ? TiedRequest::Answer::kNothing
                                 : TiedRequest::Answer::kRefused);
  deciding.refusal = MoreTelling(deciding.refusal, std::move(verdict));
  GoOn(id);
}

// Remembers the request, for the choice of a GPU for later requests.
void FleetAdmission::Remember(const AdmissionRequest& request,
                              Part* part) const {
  const uint32_t cached = part->prefixes.Known(request.model, request.prefix,
                                               request.prompt_tokens);
  part->prefilled[request.model].Sent(request.prompt_tokens - cached,
                                      clock_->NowNs());
  part->prefixes.Sent(request.model, request.prefix, request.prompt_tokens);
}

void FleetAdmission::Admit(uint64_t id, size_t place, Verdict verdict) {
  const auto known = deciding_.find(id);
  const Deciding won = std::move(known->second);
  deciding_.erase(known);
  const std::string& model = won.request.model;
  for (const size_t other : won.tied.Others(place)) {
    won.parts[other]->admission->Withdraw(id);
  }
  if (const auto charged = won.tied.charged(); charged && *charged != place) {
    won.parts[*charged]->due[model] += 1;
    won.parts[place]->due[model] -= 1;
  }
  if (won.parts.size() > 1) Remember(won.request, won.parts[place]);
  admitted_[id] = won.parts[place]->admission.get();
  won.on_verdict(std::move(verdict));
}

bool FleetAdmission::Lost(uint64_t id, size_t place) {
  const auto known = deciding_.find(id);
  if (known == deciding_.end()) return true;
  if (known->second.tied.Others(place).empty()) return false;
  known->second.tied.Lost(place);
  return true;
}

GpuAdmission* FleetAdmission::Of(uint64_t id) const {
  const auto found = admitted_.find(id);
  return found == admitted_.end() ? nullptr : found->second;
}

void FleetAdmission::Cancel(uint64_t id) {
  stopped_.Cancel(id);
  const auto known = deciding_.find(id);
  if (known != deciding_.end()) {
    for (Part* part : known->second.parts) part->admission->Cancel(id);
    deciding_.erase(known);
  }
  demand_.Left(id);
}

void FleetAdmission::FirstToken(uint64_t id) {
  demand_.FirstToken(id);
  if (GpuAdmission* const its = Of(id)) its->FirstToken(id);
}

void FleetAdmission::Progress(uint64_t id, uint32_t output_tokens) {
  if (GpuAdmission* const its = Of(id)) its->Progress(id, output_tokens);
}

void FleetAdmission::Finished(uint64_t id, uint32_t prompt_tokens,
                              uint32_t output_tokens, Outcome outcome) {
  demand_.Finished(id, output_tokens, outcome);
  if (GpuAdmission* const its = Of(id)) {
    its->Finished(id, prompt_tokens, output_tokens, outcome);
  }
  admitted_.erase(id);
  forwarded_.erase(id);
}

void FleetAdmission::Forwards(uint64_t id, const std::string& engine) {
  const config::FleetEngine* its = fleet_->Engine(engine);
  if (its == nullptr) return;
  stopped_.Asked(its->model);
  forwarded_[id] = engine;
}

GpuAdmission* FleetAdmission::Of(const std::string& engine) const {
  const config::FleetEngine* known = fleet_->Engine(engine);
  return known == nullptr ? nullptr : parts_.at(known->gpu).admission.get();
}

void FleetAdmission::Sent(const std::string& engine) {
  if (errors_.Sent(engine)) TellServing();
}

void FleetAdmission::Answered(const std::string& engine) {
  if (GpuAdmission* const its = Of(engine)) {
    its->states().Progressed(engine);
  }
  if (errors_.Answered(engine)) TellServing();
}

// One broken answer says little of the engine; its /health says more.
void FleetAdmission::Failed(const std::string& engine, EngineError error) {
  const config::FleetEngine* const known = fleet_->Engine(engine);
  // The engine has restarted, or will restart, so its cached prefixes are gone.
  if (known != nullptr && error == EngineError::kConnect) {
    parts_.at(known->gpu).prefixes.Forget();
  }
  if (errors_.Failed(engine, error)) TellServing();
  Suspect(engine);
}

void FleetAdmission::Suspect(const std::string& engine) {
  if (GpuAdmission* const its = Of(engine)) its->Suspect(engine);
}

EngineSigns FleetAdmission::Signs(const std::string& engine) const {
  const GpuAdmission* const its = Of(engine);
  return its == nullptr ? EngineSigns() : its->states().Signs(engine);
}

void FleetAdmission::TellServing() {
  for (auto& [gpu, part] : parts_) part.admission->TellServing();
}

bool FleetAdmission::Serves(const std::string& engine) const {
  const GpuAdmission* const its = Of(engine);
  return its != nullptr && its->states().Serves(engine);
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

std::map<std::string, double> FleetAdmission::AwayS() const {
  std::map<std::string, double> away;
  for (const auto& [gpu, decides] : Daemons()) {
    if (!decides) away[gpu] = parts_.at(gpu).admission->UnheardS();
  }
  return away;
}

uint64_t FleetAdmission::Unscheduled() const {
  uint64_t requests = 0;
  for (const auto& [gpu, part] : parts_) {
    requests += part.admission->unscheduled();
  }
  return requests;
}

void FleetAdmission::Rest(const std::vector<std::string>& engines,
                          const std::vector<std::string>& stopped,
                          uint64_t until_ns) {
  for (auto& [gpu, part] : parts_) {
    part.admission->Rest(engines, stopped, until_ns);
  }
}

bool FleetAdmission::IsStoppedByHand(const std::string& engine) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const auto& part) {
    return part.second.admission->states().IsStoppedByHand(engine);
  });
}

bool FleetAdmission::IsEvicted(const std::string& model,
                               const std::string& gpu) const {
  const auto part = parts_.find(gpu);
  return part != parts_.end() && part->second.admission->waits().IsAway(model);
}

absl::optional<PeerReading> FleetAdmission::ReadingOf(
    const std::string& engine) const {
  for (const auto& [gpu, part] : parts_) {
    const auto reading = part.admission->ReadingOf(engine);
    if (reading) return reading;
  }
  return absl::nullopt;
}

std::map<std::string, uint64_t> FleetAdmission::RunningByEngine() const {
  std::map<std::string, uint64_t> running;
  for (const auto& [gpu, part] : parts_) {
    for (const auto& [engine, requests] : part.admission->RunningByEngine()) {
      running[engine] += requests;
    }
  }
  for (const auto& [id, engine] : forwarded_) ++running[engine];
  return running;
}

}  // namespace fineserve::proxy
