#include "daemon/scheduling/local/engine_load.h"

#include <algorithm>
#include <vector>

namespace fineserve::sched {
namespace {

// Heuristic: a request that has outgrown the average is assumed to continue for
// this many tokens.
constexpr uint32_t kOutgrownTokens = 64;
// Smallest batch, as a part of a full one and in sequences, to which one
// client's SLO may limit an engine that also serves others. Heuristics.
constexpr uint32_t kLeastBatchPart = 8;
constexpr uint32_t kLeastBatch = 4;

uint32_t LeastBatch(const ModelSpec& model) {
  return std::max(kLeastBatch, model.max_batch / kLeastBatchPart);
}

}  // namespace

uint32_t GrowthTokens(uint32_t expected_output, uint32_t generated,
                      uint32_t max_tokens) {
  uint32_t growth = expected_output > generated ? expected_output - generated
                                                : kOutgrownTokens;
  if (max_tokens != 0) {
    growth = std::min(growth, std::max(max_tokens, generated) - generated);
  }
  return std::min(growth, kHorizonTokens);
}

Profile EngineLoad::ProfileOf(const ModelSpec& model) const {
  Profile profile = model.profile;
  profile.peer = room_.peer;
  return profile;
}

Predictor EngineLoad::Uncorrected(const ModelSpec& model) const {
  return {ProfileOf(model), model.chunk_tokens, running(), 0, 1};
}

Predictor EngineLoad::Predict(const ModelSpec& model, Micros now) const {
  Predictor predictor = Uncorrected(model);
  predictor.kappa = kappa();
  predictor.backlog_tokens = backlog_.Tokens(now, predictor);
  predictor.back_in = room_.back_in;
  return predictor;
}

uint32_t EngineLoad::MostSequences(const ModelSpec& model,
                                   Micros slo_tpot) const {
  if (!tpots_.empty() && (slo_tpot == 0 || *tpots_.begin() < slo_tpot)) {
    slo_tpot = *tpots_.begin();
  }
  if (slo_tpot == 0) return model.max_batch;
  // If the model has no SLO, this SLO is a client's.
  const uint32_t least = model.slo_tpot == 0 ? LeastBatch(model) : 1;
  return std::min(model.max_batch,
                  std::max(least, SloBatch(ProfileOf(model),
                                           learnt_.decode.kappa(), slo_tpot)));
}

uint64_t EngineLoad::free_tokens() const {
  const uint64_t held = held_tokens();
  return room_.tokens > held ? room_.tokens - held : 0;
}

Caps EngineLoad::LiveCaps(const ModelSpec& model, Micros now) const {
  const uint64_t backlog = Predict(model, now).backlog_tokens;
  // The tokens of two steps, the one under way and the next, so that the engine
  // never waits for the scheduler.
  const uint64_t two_steps = 2 * uint64_t{model.chunk_tokens};
  const uint32_t most =
      free_tokens() == 0 ? 0 : MostSequences(model, model.slo_tpot);
  return {
      most > running() ? most - running() : 0,
      std::min(two_steps > backlog ? two_steps - backlog : 0, free_tokens())};
}

WaitedFor EngineLoad::Lacks(const ModelSpec& model, const Demand& demand,
                            Micros now) const {
  if (room_.closed) return WaitedFor::kEngine;
  if (room_.back_in != 0) return WaitedFor::kActivation;
  if (running() >= MostSequences(model, demand.slo_tpot)) {
    return WaitedFor::kBatch;
  }
  const KvClaim claim = ClaimOf(room_, demand.prompt_tokens,
                                demand.growth_tokens, Phase::kFilling);
  if (booking_.TokensWith(claim) > room_.tokens) return WaitedFor::kKv;
  const uint64_t backlog = Predict(model, now).backlog_tokens;
  const bool fills = backlog != 0 && backlog + demand.prompt_tokens >
                                         2 * uint64_t{model.chunk_tokens};
  return fills ? WaitedFor::kPrefill : WaitedFor::kNothing;
}

Micros EngineLoad::EndsIn(const ModelSpec& model, uint32_t ends) const {
  if (running_.empty()) return 0;
  std::vector<uint32_t> steps;
  for (const auto& [id, r] : running_) steps.push_back(r.claim.growth);
  const auto nth = steps.begin() + (ends - 1) % steps.size();
  std::nth_element(steps.begin(), nth, steps.end());
  const uint64_t rounds = (ends - 1) / steps.size();
  const uint64_t longest = *std::max_element(nth, steps.end());
  const double step = ProfileOf(model).DecodeUs(running());
  return static_cast<Micros>(static_cast<double>(rounds * longest + *nth) *
                             step * learnt_.decode.kappa());
}

void EngineLoad::Start(RequestId id, const ModelSpec& model,
                       const Demand& demand, Micros now) {
  Predictor predictor = Uncorrected(model);
  predictor.backlog_tokens = Predict(model, now).backlog_tokens;
  CountTime(now);
  Running& r = Enter(id, demand, /*seen=*/false);
  Mark(&r, now);
  r.predicted = predictor(demand.prompt_tokens);
  r.guessed = model.profile.guessed;
  backlog_.Add(id, demand.prompt_tokens, now, Predict(model, now));
}

EngineLoad::Running& EngineLoad::Enter(RequestId id, const Demand& demand,
                                       bool seen) {
  Running& r = running_[id];
  r.demand = demand;
  r.seen = seen;
  Book(&r, demand.growth_tokens);
  if (demand.slo_tpot != 0) tpots_.insert(demand.slo_tpot);
  return r;
}

void EngineLoad::Book(Running* r, uint32_t growth) {
  r->claim = ClaimOf(room_, uint64_t{r->demand.prompt_tokens} + r->generated,
                     growth, r->seen ? Phase::kAnswering : Phase::kFilling);
  booking_.Add(r->claim);
}

void EngineLoad::Adopt(RequestId id, const Demand& demand) {
  Enter(id, demand, /*seen=*/true);
}

bool EngineLoad::FirstToken(RequestId id, Micros now) {
  const auto found = running_.find(id);
  if (found == running_.end() || found->second.seen) return false;
  Running& r = found->second;
  r.seen = true;
  booking_.Remove(r.claim);
  Book(&r, r.claim.growth);
  learnt_.prefill.Observe(now - *r.since, r.predicted, r.guessed);
  CountTime(now);
  Mark(&r, now);
  backlog_.FirstToken(id, now);
  return true;
}

void EngineLoad::Mark(Running* r, Micros now) {
  r->since = now;
  r->sequence_us = sequence_us_;
}

void EngineLoad::CountTime(Micros now) {
  sequence_us_ += static_cast<double>(now - counted_to_) * running();
  counted_to_ = now;
}

double EngineLoad::DecodeTime(const Running& r, const ModelSpec& model,
                              uint32_t output_tokens, Micros now) const {
  const auto time = static_cast<double>(std::max<Micros>(now - *r.since, 1));
  const double sequences = std::max(1.0, (sequence_us_ - r.sequence_us) / time);
  return ProfileOf(model).DecodeUs(sequences) *
         (std::max(output_tokens, 1u) - 1);
}

absl::optional<Micros> EngineLoad::CameWhole(RequestId id,
                                             const ModelSpec& model,
                                             uint32_t output_tokens,
                                             Micros now) {
  const auto found = running_.find(id);
  if (found == running_.end() || !found->second.since) return absl::nullopt;
  const Running& r = found->second;
  CountTime(now);
  const double after = DecodeTime(r, model, output_tokens, now);
  Micros first = *r.since;
  if (!r.seen) {
    const double until = kappa() * static_cast<double>(r.predicted);
    const double all = until + learnt_.decode.kappa() * after;
    const double part = all > 0 ? until / all : 1;
    first += static_cast<Micros>(static_cast<double>(now - first) * part);
    learnt_.prefill.Observe(first - *r.since, r.predicted, r.guessed);
  }
  learnt_.decode.Observe(now - first, static_cast<Micros>(after), r.guessed);
  if (r.seen) return absl::nullopt;
  return first;
}

void EngineLoad::Progress(RequestId id, uint32_t generated, uint32_t growth) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  Running& r = found->second;
  booking_.Remove(r.claim);
  r.generated = generated;
  Book(&r, growth);
}

void EngineLoad::Finish(RequestId id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  booking_.Remove(found->second.claim);
  if (const Micros tpot = found->second.demand.slo_tpot; tpot != 0) {
    tpots_.erase(tpots_.find(tpot));
  }
  backlog_.Remove(id);
  running_.erase(found);
}

}  // namespace fineserve::sched
