// The reports that AdmissionService makes to fsctl, and to proxies that say
// Hello.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/connection_watch.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fineserved/admission/admission_service.h"

namespace fineserve::admission {

using sched::Micros;
using sched::ModelId;
using sched::Number;
using sched::Refusal;
using sched::ReplicaId;

namespace {

constexpr uint32_t kMostRequestsReported = 10'000;

std::unique_ptr<wire::ModelFiguresT> Convert(const sched::ModelSpec& spec,
                                             const sched::ModelFigures& from) {
  auto to = std::make_unique<wire::ModelFiguresT>();
  to->name = spec.name;
  to->slo_ttft_ms = static_cast<uint32_t>(spec.slo_ttft / 1000);
  to->queued = from.queued - from.tied;
  to->degraded = from.degraded - from.tied_degraded;
  to->queued_tokens = from.queued_tokens - from.tied_tokens;
  to->admitted = from.admitted + from.admitted_degraded;
  to->cancelled = from.cancelled;
  const auto rejected = [&](Refusal refusal) {
    return from.rejected[verdict::Index(refusal)];
  };
  to->rejected_deadline = rejected(Refusal::kDeadline);
  to->rejected_too_long = rejected(Refusal::kTooLong);
  to->rejected_no_engine = rejected(Refusal::kNoEngine);
  to->rejected_queue_full = rejected(Refusal::kQueueFull);
  to->on_time = from.on_time;
  to->late = from.late;
  return to;
}

void Convert(const sched::RecentService& from, Micros now,
             wire::ModelFiguresT* to) {
  const sched::RecentService::Counts counts = from.Of(now);
  to->recent_on_time = counts.on_time;
  to->recent_late = counts.late;
  to->recent_refused = counts.all_refused();
  const auto& refused = counts.refused;
  to->recent_lack = static_cast<wire::WaitedFor>(
      std::max_element(refused.begin(), refused.end()) - refused.begin());
  if (const auto since = from.BurnsSince(now)) {
    to->burns_s = static_cast<double>(now - *since) * 1e-6;
  }
  if (const auto median = from.Ttft(0.5, now)) {
    to->ttft_p50_ms = static_cast<double>(*median) * 1e-3;
    to->ttft_p99_ms = static_cast<double>(*from.Ttft(0.99, now)) * 1e-3;
  }
}

void Convert(const sched::EngineFigures& from, wire::EngineFiguresT* to) {
  to->running = from.running;
  to->kappa = from.kappa;
  to->most_running = from.running + from.caps.requests;
  to->most_tokens =
      static_cast<uint32_t>(std::min<uint64_t>(from.caps.tokens, UINT32_MAX));
  to->kv_tokens = from.held_tokens + from.free_tokens;
  to->held_tokens = from.held_tokens;
  to->backlog_tokens = from.backlog_tokens;
}

}  // namespace

double AdmissionService::SecondsSince(uint64_t ns) const {
  return static_cast<double>(daemon_.clock->NowNs() - ns) * 1e-9;
}

std::map<std::string, double> AdmissionService::TroublesOf(
    const Engine& engine) const {
  std::map<std::string, double> troubles;
  for (const auto& [what, since_ns] : proxies_.TroublesOf(engine.name)) {
    troubles[what] = std::max(0.0, SecondsSince(since_ns));
  }
  const auto view = view_token_bytes_.find(engine.name);
  if (view != view_token_bytes_.end() && engine.kv_token_bytes != 0 &&
      view->second != engine.kv_token_bytes) {
    troubles[absl::StrCat(
        "its view has ", view->second, " bytes of KV a token, and ",
        engine.kv_token_bytes,
        " is its model's kv_token_bytes: correct or "
        "remove that (an engine on several GPUs has a part of it on each)")] =
        -1;
  }
  return troubles;
}

std::unique_ptr<wire::EngineFiguresT> AdmissionService::Figures(
    const Engine& engine, const sched::EngineFigures* figures) const {
  auto reported = std::make_unique<wire::EngineFiguresT>();
  reported->name = engine.name;
  reported->serves = proxies_.Serves(engine.name);
  reported->heard = !proxies_.empty();
  reported->on_request = on_request_.count(engine.name) != 0;
  reported->stopped = proxies_.IsStopped(engine.name);
  reported->scaled = scaled_.count(engine.name) != 0;
  const absl::optional<absl::Time> since = daemon_.drained->Since(engine.name);
  reported->drains = since.has_value();
  if (since) reported->drains_s = absl::ToDoubleSeconds(SteadyNow() - *since);
  if (engine.silent_ns != 0)
    reported->silent_s = SecondsSince(engine.silent_ns);
  for (const auto& [trouble, seconds] : TroublesOf(engine)) {
    reported->troubles.push_back(trouble);
    reported->troubles_s.push_back(seconds);
  }
  if (figures != nullptr) Convert(*figures, reported.get());
  const size_t i = EngineIndex(engine.name);
  const EngineKv::Dropped& dropped = kv_[i].dropped;
  reported->dropped_bytes = dropped.bytes;
  if (dropped.bytes != 0) {
    reported->lender_pid = dropped.lender_pid;
    reported->dropped_s = DroppedForS(i);
    reported->reads_us = AddedByReadsUs(i);
  }
  if (drops_.on()) reported->keeps_weights = drops_.why(i);
  return reported;
}

wire::WelcomeT AdmissionService::Welcome() const {
  wire::WelcomeT welcome;
  welcome.policy = policy_;
  for (const auto& [name, model] : models_) {
    if (!AnyServes(model)) continue;
    auto wait = std::make_unique<wire::ModelWaitT>();
    wait->model = name;
    const sched::Outlook outlook = scheduler_.OutlookOf(model, Now());
    wait->wait_us = static_cast<uint64_t>(outlook.us);
    wait->full = outlook.full;
    wait->away = outlook.away;
    welcome.waits.push_back(std::move(wait));
  }
  for (size_t i = 0; i < engines_.size(); ++i) {
    const EngineKv::Dropped& dropped = kv_[i].dropped;
    if (dropped.bytes == 0) continue;
    auto reading = std::make_unique<wire::PeerReadingT>();
    reading->engine = engines_[i].name;
    reading->bytes = dropped.bytes;
    reading->lender_pid = dropped.lender_pid;
    reading->s = DroppedForS(i);
    reading->step_us = AddedByReadsUs(i);
    welcome.reading.push_back(std::move(reading));
  }
  if (const wire::PlanT* plan = daemon_.plans->newest().plan()) {
    welcome.plan = std::make_unique<wire::PlanT>(*plan);
  }
  return welcome;
}

wire::ModelsT AdmissionService::Models() const {
  wire::ModelsT models;
  models.policy = policy_;
  models.refused_connections = wire::Sum(daemon_.ask_gpu().refused);
  models.counting = !KnowsWhatRuns();
  for (const auto& [peer, known] : proxies_.all()) {
    models.unscheduled += known.unscheduled;
  }
  const auto figures = scheduler_.Engines(Now());
  for (uint32_t m = 0; m < scheduler_.models(); ++m) {
    const ModelId id{m};
    models.models.push_back(
        Convert(scheduler_.model(id), scheduler_.Figures(id)));
    Convert(scheduler_.Recent(id), Now(), models.models.back().get());
  }
  for (uint32_t i = 0; i < engines_.size(); ++i) {
    const auto known = figures.find(ReplicaId{i});
    models.models[Number(engines_[i].model)]->engines.push_back(Figures(
        engines_[i], known == figures.end() ? nullptr : &known->second));
  }
  return models;
}

void AdmissionService::CountOnFrom(const AdmissionService& before) {
  for (const auto& [name, model] : models_) {
    const auto its = before.models_.find(name);
    if (its == before.models_.end()) continue;
    scheduler_.CountOnFrom(model, before.scheduler_.Figures(its->second));
  }
  demand_.CountOnFrom(before.demand_);
  window_ = before.window_;
  idle_.GoOnFrom(before.idle_);
  drops_.GoOnFrom(before.drops_);
  for (size_t i = 0; i < engines_.size(); ++i) {
    const size_t its = before.EngineIndex(engines_[i].name);
    if (its < before.engines_.size()) {
      peer_read_bytes_[i] = before.peer_read_bytes_[its];
    }
  }
  LearnFrom(before.WhatWasLearnt());
}

Learnt AdmissionService::WhatWasLearnt() const {
  Learnt learnt;
  for (uint32_t i = 0; i < engines_.size(); ++i) {
    const sched::ModelSpec& model = scheduler_.model(engines_[i].model);
    learnt.engines[engines_[i].name] = {model.name, model.profile,
                                        scheduler_.Learnt(ReplicaId{i})};
  }
  for (const auto& [name, model] : models_) {
    learnt.expected_output[name] = scheduler_.Figures(model).expected_output;
  }
  return learnt;
}

void AdmissionService::LearnFrom(const Learnt& before) {
  for (uint32_t i = 0; i < engines_.size(); ++i) {
    const sched::ModelSpec& model = scheduler_.model(engines_[i].model);
    const auto its = before.engines.find(engines_[i].name);
    if (its == before.engines.end() || its->second.model != model.name ||
        !(its->second.profile == model.profile)) {
      continue;
    }
    scheduler_.LearnFrom(ReplicaId{i}, its->second.corrections);
  }
  for (const auto& [name, model] : models_) {
    const auto its = before.expected_output.find(name);
    if (its != before.expected_output.end()) {
      scheduler_.LearnFrom(model, its->second);
    }
  }
}

wire::RequestsT AdmissionService::Requests(uint32_t most) const {
  wire::RequestsT reported;
  const Micros now = Now();
  for (const sched::RequestView& r : scheduler_.Requests()) {
    if (!r.engine && r.asked->asked_before) continue;
    ++reported.total;
    if (reported.requests.size() == std::min(most, kMostRequestsReported))
      continue;
    auto figures = std::make_unique<wire::RequestFiguresT>();
    figures->request = Number(r.asked->id);
    const ProxyBook::Origin* origin = proxies_.FindOrigin(r.asked->id);
    if (origin != nullptr) figures->id = origin->name;
    figures->model = scheduler_.model(r.asked->model).name;
    if (r.engine) figures->engine = engines_[Number(*r.engine)].name;
    figures->degraded = r.degraded;
    figures->prompt_tokens = r.asked->prompt_tokens;
    figures->age_ms =
        static_cast<uint64_t>(std::max<Micros>(now - r.asked->arrival, 0)) /
        1000;
    figures->slack_ms =
        r.deadline == sched::kNever ? INT64_MAX : (r.deadline - now) / 1000;
    reported.requests.push_back(std::move(figures));
  }
  return reported;
}

}  // namespace fineserve::admission
