#include "daemon/scheduling/local/local_scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/base/hash.h"

namespace fineserve::sched {
namespace {

// The output expected before any request has finished. Heuristic, from chat
// traces.
constexpr double kFirstExpectedOutput = 256;
constexpr double kOutputWeight = 0.05;
// Decisions are not needed more often than this while an engine works.
constexpr Micros kLeastWait = 1000;

Micros Deadline(Micros arrival, Micros slo) {
  return slo < kNever - arrival ? arrival + slo : kNever;
}

}  // namespace

LocalScheduler::LocalScheduler(std::vector<ModelSpec> models,
                               std::unique_ptr<Policy> policy)
    : policy_(std::move(policy)) {
  for (ModelSpec& spec : models) {
    models_.push_back({std::move(spec), {}, kFirstExpectedOutput, {}, {}});
  }
}

absl::Status LocalScheduler::SetEngine(ReplicaId engine, ModelId model,
                                       KvRoom room) {
  if (Number(model) >= models_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine ", Number(engine), ": there is no model ",
                     Number(model), " of ", models_.size()));
  }
  const auto place =
      engines_.try_emplace(engine, Engine{model, EngineLoad(Learnt(engine))})
          .first;
  if (place->second.model != model) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine ", Number(engine), " serves model ",
                     Number(place->second.model), ", not ", Number(model)));
  }
  place->second.load.SetKv(room);
  ModelOf(model).engines.insert(engine);
  return absl::OkStatus();
}

void LocalScheduler::EngineGone(ReplicaId engine) {
  const auto place = engines_.find(engine);
  if (place == engines_.end()) return;
  ModelOf(place->second.model).engines.erase(engine);
  learnt_[engine] = place->second.load.learnt();
  engines_.erase(place);
  for (auto r = requests_.begin(); r != requests_.end();) {
    r = r->second.engine == engine ? requests_.erase(r) : std::next(r);
  }
}

absl::optional<Refusal> LocalScheduler::WhyRefused(
    const Submission& submission) const {
  const Model& model = ModelOf(submission.model);
  if (model.engines.empty()) return Refusal::kNoEngine;
  if (queued_ >= kMostQueued) return Refusal::kQueueFull;
  const bool fits = std::any_of(
      model.engines.begin(), model.engines.end(), [&](ReplicaId id) {
        const KvRoom& kv = engines_.at(id).load.kv();
        // At least one token is generated.
        return RoomFor(kv, uint64_t{submission.prompt_tokens} + 1,
                       Phase::kFilling) <= kv.most_tokens;
      });
  if (!fits) return Refusal::kTooLong;
  return absl::nullopt;
}

absl::StatusOr<LocalScheduler::Request*> LocalScheduler::Enter(
    const Submission& s) {
  if (Number(s.model) >= models_.size() || s.prompt_tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "request ", Number(s.id), ": model ", Number(s.model), " of ",
        models_.size(), ", ", s.prompt_tokens, " prompt tokens"));
  }
  const auto [place, is_new] = requests_.try_emplace(s.id);
  if (!is_new) {
    return absl::AlreadyExistsError(
        absl::StrCat("request ", Number(s.id), " is still there"));
  }
  Request& r = place->second;
  r.submission = s;
  const Micros slo =
      s.slo_ttft_us != 0 ? s.slo_ttft_us : ModelOf(s.model).spec.slo_ttft;
  r.queued = {{s.prompt_tokens, s.id, Deadline(s.arrival, slo)},
              s.model,
              s.arrival,
              s.priority,
              base::Hash(s.tenant)};
  return &r;
}

absl::Status LocalScheduler::Adopt(const Submission& s, ReplicaId engine) {
  const auto on = engines_.find(engine);
  if (on == engines_.end() || on->second.model != s.model) {
    return absl::NotFoundError(
        absl::StrCat("request ", Number(s.id), ": engine ", Number(engine),
                     " is not in service for model ", Number(s.model)));
  }
  const absl::StatusOr<Request*> entered = Enter(s);
  if (!entered.ok()) return entered.status();
  Request& r = **entered;
  r.queued.waiting.deadline = kNever;
  r.engine = engine;
  on->second.load.Adopt(s.id, DemandOf(r, on->second.load));
  return absl::OkStatus();
}

absl::Status LocalScheduler::Submit(const Submission& s) {
  const absl::StatusOr<Request*> entered = Enter(s);
  if (!entered.ok()) return entered.status();
  Request& r = **entered;
  r.round = round_;
  Model& model = ModelOf(s.model);
  r.refusal = WhyRefused(s);
  if (r.refusal) {
    refused_.push_back(s.id);
    return absl::OkStatus();
  }
  ++queued_;
  ++model.figures.queued;
  model.figures.queued_tokens += s.prompt_tokens;
  if (s.asked_before) {
    ++model.figures.tied;
    model.figures.tied_tokens += s.prompt_tokens;
  }
  policy_->Add(r.queued);
  return absl::OkStatus();
}

void LocalScheduler::Unqueue(const Request& request) {
  Model& model = ModelOf(request.submission.model);
  --queued_;
  --model.figures.queued;
  model.figures.queued_tokens -= request.submission.prompt_tokens;
  const bool tied = request.submission.asked_before;
  if (tied) {
    --model.figures.tied;
    model.figures.tied_tokens -= request.submission.prompt_tokens;
  }
  if (!request.degraded) return;
  --model.figures.degraded;
  if (tied) --model.figures.tied_degraded;
  model.degraded.erase({request.submission.arrival, request.submission.id});
}

void LocalScheduler::Cancel(RequestId id) {
  const auto place = requests_.find(id);
  if (place == requests_.end()) return;
  ++ModelOf(place->second.submission.model).figures.cancelled;
  Erase(place);
}

void LocalScheduler::Withdraw(RequestId id) {
  const auto place = requests_.find(id);
  if (place == requests_.end()) return;
  const Request& r = place->second;
  ModelFigures& figures = ModelOf(r.submission.model).figures;
  if (r.engine) --(r.degraded ? figures.admitted_degraded : figures.admitted);
  Erase(place);
}

void LocalScheduler::Erase(
    std::unordered_map<RequestId, Request>::iterator request) {
  const Request& r = request->second;
  if (r.engine) {
    engines_.at(*r.engine).load.Finish(r.submission.id);
  } else if (!r.refusal) {
    if (!r.degraded) policy_->Remove(r.queued);
    Unqueue(r);
  }
  requests_.erase(request);
}

void LocalScheduler::FirstToken(RequestId id, Micros now) {
  const auto place = requests_.find(id);
  if (place == requests_.end() || !place->second.engine) return;
  const Request& r = place->second;
  if (!engines_.at(*r.engine).load.FirstToken(id, now)) return;
  CountFirstToken(r, now);
}

void LocalScheduler::CountFirstToken(const Request& r, Micros came) {
  Model& model = ModelOf(r.submission.model);
  const bool on_time = !r.degraded && came <= r.queued.waiting.deadline;
  ++(on_time ? model.figures.on_time : model.figures.late);
  model.recent.FirstToken(on_time, came - r.submission.arrival, came);
}

void LocalScheduler::CameWhole(RequestId id, uint32_t output_tokens,
                               Micros now) {
  const auto place = requests_.find(id);
  if (place == requests_.end() || !place->second.engine) return;
  const Request& r = place->second;
  const absl::optional<Micros> came = engines_.at(*r.engine).load.CameWhole(
      id, ModelOf(r.submission.model).spec, output_tokens, now);
  if (came) CountFirstToken(r, *came);
}

void LocalScheduler::CountOnFrom(ModelId model, const ModelFigures& before) {
  Model& m = ModelOf(model);
  m.figures.admitted += before.admitted;
  m.figures.admitted_degraded += before.admitted_degraded;
  m.figures.cancelled += before.cancelled;
  m.figures.on_time += before.on_time;
  m.figures.late += before.late;
  for (size_t i = 0; i < verdict::kRefusals; ++i) {
    m.figures.rejected[i] += before.rejected[i];
  }
}

void LocalScheduler::LearnFrom(ReplicaId engine, const Corrections& before) {
  learnt_[engine] = before;
}

void LocalScheduler::LearnFrom(ModelId model, double expected_output) {
  ModelOf(model).expected_output = expected_output;
}

Corrections LocalScheduler::Learnt(ReplicaId engine) const {
  const auto serves = engines_.find(engine);
  if (serves != engines_.end()) return serves->second.load.learnt();
  const auto before = learnt_.find(engine);
  return before == learnt_.end() ? Corrections() : before->second;
}

void LocalScheduler::Progress(RequestId id, uint32_t generated_tokens) {
  const auto place = requests_.find(id);
  if (place == requests_.end() || !place->second.engine) return;
  const Submission& s = place->second.submission;
  EngineLoad& load = engines_.at(*place->second.engine).load;
  if (s.max_tokens != 0) {
    generated_tokens = std::min(generated_tokens, s.max_tokens);
  }
  load.Progress(id, generated_tokens, GrowthOf(s, load, generated_tokens));
}

void LocalScheduler::Finished(RequestId id, uint32_t output_tokens) {
  const auto place = requests_.find(id);
  if (place == requests_.end() || !place->second.engine) return;
  Model& model = ModelOf(place->second.submission.model);
  engines_.at(*place->second.engine).load.Finish(id);
  requests_.erase(place);
  if (output_tokens == 0) return;
  model.expected_output +=
      kOutputWeight * (output_tokens - model.expected_output);
}

std::vector<ReplicaId> LocalScheduler::EnginesOf(ModelId model) const {
  const auto& engines = ModelOf(model).engines;
  return {engines.begin(), engines.end()};
}

Predictor LocalScheduler::Predict(ReplicaId engine, Micros now) const {
  const Engine& e = engines_.at(engine);
  return e.load.Predict(ModelOf(e.model).spec, now);
}

Demand LocalScheduler::DemandOf(const Request& request,
                                const EngineLoad& engine) const {
  const Submission& s = request.submission;
  return {s.prompt_tokens, GrowthOf(s, engine, 0), TpotOf(s)};
}

// The engine also serves others, so a client cannot ask for less than the
// model's SLO. (If the model has none, EngineLoad keeps a least batch.)
Micros LocalScheduler::TpotOf(const Submission& s) const {
  const ModelSpec& spec = ModelOf(s.model).spec;
  return s.slo_tpot_us == 0 ? spec.slo_tpot
                            : std::max(s.slo_tpot_us, spec.slo_tpot);
}

uint32_t LocalScheduler::GrowthOf(const Submission& s, const EngineLoad& engine,
                                  uint32_t generated) const {
  const auto expected = static_cast<uint32_t>(ModelOf(s.model).expected_output);
  // KV that the engine can never have does not need to be kept free.
  return GrowthThatFits(engine.kv(), uint64_t{s.prompt_tokens} + generated,
                        GrowthTokens(expected, generated, s.max_tokens),
                        generated == 0 ? Phase::kFilling : Phase::kAnswering);
}

bool LocalScheduler::Takes(ReplicaId engine, const Queued& request,
                           Micros now) {
  if (started_on_ && *started_on_ != engine) {
    started_on_.reset();
    update_rooms_();
  }
  const EngineLoad& load = engines_.at(engine).load;
  Request& r = requests_.at(request.waiting.id);
  if (kept_.count(engine) > 0) {
    r.lacks = WaitedFor::kTurn;
    return false;
  }
  const WaitedFor lacks =
      load.Lacks(ModelOf(request.model).spec, DemandOf(r, load), now);
  if (lacks == WaitedFor::kNothing) return true;
  r.lacks = lacks;
  return false;
}

WaitedFor LocalScheduler::WhyItWaited(const Request& request) const {
  return request.round == round_ ? WaitedFor::kNothing : request.lacks;
}

// Returns `chosen`, unless it has just failed the request: then another engine
// takes it, even a full one, because the request has been accepted.
ReplicaId LocalScheduler::PlaceOf(const Request& request, ReplicaId chosen,
                                  Micros now) const {
  const Submission& s = request.submission;
  if (s.avoid != chosen) return chosen;
  ReplicaId best = chosen;
  Micros least = kNever;
  for (const ReplicaId other : ModelOf(s.model).engines) {
    if (other == chosen || engines_.at(other).load.kv().closed) continue;
    const Micros ttft = Predict(other, now)(s.prompt_tokens);
    if (ttft >= least) continue;
    best = other;
    least = ttft;
  }
  return best;
}

void LocalScheduler::Start(const Queued& request, ReplicaId chosen,
                           Micros now) {
  const RequestId id = request.waiting.id;
  Request& r = requests_.at(id);
  const ReplicaId engine = PlaceOf(r, chosen, now);
  Model& model = ModelOf(request.model);
  EngineLoad& load = engines_.at(engine).load;
  Decision decision{id, engine, r.degraded};
  decision.predicted_ttft =
      now - request.arrival +
      load.Predict(model.spec, now)(request.waiting.tokens);
  decision.waited_for = WhyItWaited(r);
  Unqueue(r);
  model.passed = r.degraded || model.degraded.empty() ? 0 : model.passed + 1;
  ++(r.degraded ? model.figures.admitted_degraded : model.figures.admitted);
  load.Start(id, model.spec, DemandOf(r, load), now);
  r.engine = engine;
  started_on_ = engine;
  decisions_.push_back(decision);
}

void LocalScheduler::Drop(const Queued& request, Micros now) {
  Request& r = requests_.at(request.waiting.id);
  Model& model = ModelOf(request.model);
  if (!r.submission.degrade_ok) {
    Unqueue(r);
    Reject(r, model.engines.empty() ? Refusal::kNoEngine : Refusal::kDeadline,
           now);
    return;
  }
  r.degraded = true;
  ++model.figures.degraded;
  if (r.submission.asked_before) ++model.figures.tied_degraded;
  model.degraded.emplace(r.submission.arrival, r.submission.id);
}

Micros LocalScheduler::Drain(ModelId model, Micros now) const {
  const Model& m = ModelOf(model);
  const Prospect all = BestProspect(*this, model, m.figures.queued_tokens, now);
  if (all.ttft == kNever) return 0;
  return all.ttft / static_cast<Micros>(m.engines.size());
}

Opening LocalScheduler::OpeningOf(const Model& model, const Request& request,
                                  uint32_t ahead, Micros now) const {
  Opening best = {WaitedFor::kEngine, kNever};
  for (const ReplicaId id : model.engines) {
    const EngineLoad& load = engines_.at(id).load;
    WaitedFor lacks = load.Lacks(model.spec, DemandOf(request, load), now);
    if (lacks == WaitedFor::kEngine) continue;
    const Micros fills = load.Predict(model.spec, now)(1);
    if (lacks == WaitedFor::kNothing && ahead > 0) lacks = WaitedFor::kTurn;
    const bool ends = lacks == WaitedFor::kBatch || lacks == WaitedFor::kKv;
    const auto engines = static_cast<uint32_t>(model.engines.size());
    const Micros in =
        lacks == WaitedFor::kNothing ? 0
        : ends ? std::max(load.EndsIn(model.spec, 1 + ahead / engines), fills)
               : fills;
    if (in < best.in) best = {lacks, in};
  }
  return best;
}

Opening LocalScheduler::NextOpening(ModelId id, Micros now) const {
  const Model& model = ModelOf(id);
  Request shortest;
  shortest.submission.model = id;
  shortest.submission.prompt_tokens = 1;
  return OpeningOf(model, shortest, model.figures.queued, now);
}

Outlook LocalScheduler::OutlookOf(ModelId model, Micros now) const {
  const Opening next = NextOpening(model, now);
  return {std::max(Drain(model, now), next.in == kNever ? 0 : next.in),
          next.lacks != WaitedFor::kNothing,
          next.lacks == WaitedFor::kActivation};
}

Micros LocalScheduler::EndsIn(ReplicaId id) const {
  const auto engine = engines_.find(id);
  if (engine == engines_.end()) return 0;
  const EngineLoad& load = engine->second.load;
  return load.EndsIn(ModelOf(engine->second.model).spec,
                     std::max(1u, load.running()));
}

absl::optional<Opening> LocalScheduler::OpeningFor(RequestId id,
                                                   Micros now) const {
  const auto place = requests_.find(id);
  if (place == requests_.end() || place->second.engine) return absl::nullopt;
  const Request& r = place->second;
  const Model& model = ModelOf(r.submission.model);
  return OpeningOf(model, r, model.figures.queued - 1, now);
}

// Counts a refusal. If a model has no engine, or a request fits none, that is
// not an overload.
void LocalScheduler::CountRefusal(const Request& request, Refusal refusal,
                                  Micros now) {
  if (refusal != Refusal::kDeadline && refusal != Refusal::kQueueFull) return;
  const ModelId model = request.submission.model;
  const WaitedFor waited = WhyItWaited(request);
  ModelOf(model).recent.Refused(
      waited == WaitedFor::kNothing ? NextOpening(model, now).lacks : waited,
      now);
}

void LocalScheduler::Reject(const Request& request, Refusal refusal,
                            Micros now) {
  const Submission& s = request.submission;
  const RequestId id = s.id;
  if (!s.asked_before) {
    ++ModelOf(s.model).figures.rejected[verdict::Index(refusal)];
    CountRefusal(request, refusal, now);
  }
  const Prospect best = BestProspect(*this, s.model, s.prompt_tokens, now);
  Decision decision{id, absl::nullopt, false, refusal};
  decision.retry_after = OutlookOf(s.model, now).us;
  decision.predicted_ttft =
      now - s.arrival + (best.ttft == kNever ? 0 : best.ttft);
  decision.waited_for = WhyItWaited(request);
  decisions_.push_back(decision);
  requests_.erase(id);
}

const Queued& LocalScheduler::FirstDegraded(const Model& model) const {
  return requests_.at(model.degraded.begin()->second).queued;
}

void LocalScheduler::StartOverdue(ModelId id, Micros now) {
  const Model& model = ModelOf(id);
  if (model.passed < kMostPassed || model.degraded.empty()) return;
  const Queued first = FirstDegraded(model);
  const Prospect best = BestProspect(*this, id, first.waiting.tokens, now);
  if (best.ttft == kNever) return;
  if (Takes(best.engine, first, now)) {
    Start(first, best.engine, now);
  } else {
    kept_.insert(best.engine);
  }
}

void LocalScheduler::StartDegraded(ModelId id, Micros now) {
  const Model& model = ModelOf(id);
  if (model.figures.queued > model.figures.degraded) return;
  for (const ReplicaId engine : model.engines) {
    if (model.degraded.empty()) return;
    const Queued first = FirstDegraded(model);
    if (Predict(engine, now).backlog_tokens == 0 && Takes(engine, first, now)) {
      Start(first, engine, now);
    }
  }
}

void LocalScheduler::TellRefused(Micros now) {
  for (const RequestId id : refused_) {
    const auto place = requests_.find(id);
    if (place == requests_.end() || !place->second.refusal) continue;
    Reject(place->second, *place->second.refusal, now);
  }
  refused_.clear();
}

std::vector<Decision> LocalScheduler::Decide(Micros now) {
  decisions_.clear();
  started_on_.reset();
  kept_.clear();
  TellRefused(now);
  for (uint32_t m = 0; m < models_.size(); ++m) StartOverdue(ModelId{m}, now);
  policy_->Decide(now, this);
  kept_.clear();
  for (uint32_t m = 0; m < models_.size(); ++m) StartDegraded(ModelId{m}, now);
  ++round_;
  return std::move(decisions_);
}

Micros LocalScheduler::NextWake(Micros now) const {
  if (!refused_.empty()) return now;
  Micros wake = policy_->NextCheck();
  for (const auto& [id, engine] : engines_) {
    const Model& model = ModelOf(engine.model);
    const Predictor predictor = Predict(id, now);
    // Without a backlog, the engine takes the next request at once, or lacks
    // something that only an event can bring.
    if (model.figures.queued == 0 || predictor.backlog_tokens == 0) continue;
    wake = std::min(wake, now + std::max(predictor.FullStep(), kLeastWait));
  }
  return wake;
}

}  // namespace fineserve::sched
