#include "daemon/evict/idle_engines.h"

#include <algorithm>
#include <utility>

namespace fineserve::evict {

using sched::Micros;

IdleEngines::IdleEngines(EvictionPolicy policy, std::vector<Rules> rules)
    : policy_(policy) {
  for (Rules& rule : rules) {
    any_ = any_ || rule.may_evict;
    engines_.push_back({std::move(rule)});
  }
}

void IdleEngines::Saw(size_t index, Activity activity, Micros now) {
  Engine& engine = engines_[index];
  engine.is_busy = activity == Activity::kBusy;
  if (activity == Activity::kIdle) {
    if (engine.idle_since == kNotIdle) engine.idle_since = engine.asked = now;
    return;
  }
  const Micros since = std::exchange(engine.idle_since, kNotIdle);
  if (activity == Activity::kAway || since == kNotIdle) return;
  engine.times.Ended(now - since);
  all_.Ended(now - since);
}

std::vector<size_t> IdleEngines::Due(Micros now) {
  std::vector<size_t> due;
  for (size_t i = 0; i < engines_.size(); ++i) {
    Engine& engine = engines_[i];
    const Rules& rules = engine.rules;
    if (!rules.may_evict || rules.evict_after == 0) continue;
    if (engine.idle_since == kNotIdle) continue;
    if (now - engine.asked < rules.evict_after) continue;
    engine.asked = now;
    due.push_back(i);
  }
  return due;
}

void IdleEngines::Note(const absl::optional<Residence>& residence, Micros now,
                       Engine* engine) {
  if (!residence) return;
  const bool was_away = std::exchange(engine->is_away, residence->bytes == 0);
  if (was_away && !engine->is_away) engine->here_since = now;
}

IdleEngine IdleEngines::Describe(const Engine& engine,
                                 const Residence& residence, Micros now) const {
  IdleEngine e;
  e.bytes = residence.bytes;
  e.idle = now - engine.idle_since;
  e.here = now - engine.here_since;
  e.activation = residence.activation;
  e.slo_ttft = engine.rules.slo_ttft;
  e.chance = engine.times.ChanceWithin(kHorizon, e.idle, all_);
  return e;
}

absl::optional<size_t> IdleEngines::WhoLeaves(RoomFor reason,
                                              absl::string_view asker,
                                              Micros now,
                                              const ResidenceOf& residence_of) {
  std::vector<size_t> places;
  std::vector<IdleEngine> idle;
  std::vector<Busy> busy;
  for (size_t i = 0; i < engines_.size(); ++i) {
    Engine& engine = engines_[i];
    if (!engine.rules.may_evict) continue;
    const auto residence = residence_of(i);
    Note(residence, now, &engine);
    if (!residence || residence->bytes == 0 || engine.rules.name == asker) {
      continue;
    }
    if (engine.idle_since != kNotIdle) {
      places.push_back(i);
      idle.push_back(Describe(engine, *residence, now));
    } else if (engine.is_busy &&
               now - engine.here_since >= kStays * residence->activation) {
      busy.push_back({i, engine.here_since});
    }
  }
  const auto first = evict::WhoLeaves(policy_, reason, idle);
  if (first) return places[*first];
  if (reason == RoomFor::kRequests) LetOneRest(busy, now);
  return absl::nullopt;
}

// The same one as before, until it has left.
void IdleEngines::LetOneRest(const std::vector<Busy>& busy, Micros now) {
  if (busy.empty()) return;
  const bool goes_on =
      now < rest_until_ &&
      std::any_of(busy.begin(), busy.end(),
                  [this](const Busy& b) { return b.engine == resting_; });
  if (!goes_on) {
    resting_ = std::min_element(busy.begin(), busy.end(),
                                [](const Busy& a, const Busy& b) {
                                  return a.here_since < b.here_since;
                                })
                   ->engine;
  }
  rest_until_ = now + kRest;
}

void IdleEngines::GoOnFrom(const IdleEngines& before) {
  all_ = before.all_;
  for (Engine& engine : engines_) {
    for (const Engine& former : before.engines_) {
      if (former.rules.name != engine.rules.name) continue;
      Rules rules = std::move(engine.rules);
      engine = former;
      engine.rules = std::move(rules);
    }
  }
}

}  // namespace fineserve::evict
