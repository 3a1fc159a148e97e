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

std::vector<IdleEngines::Resident> IdleEngines::Residents(
    absl::string_view asker, Micros now, const ResidenceOf& residence_of) {
  std::vector<Resident> residents;
  for (size_t i = 0; i < engines_.size(); ++i) {
    Engine& engine = engines_[i];
    if (!engine.rules.may_evict) continue;
    const auto residence = residence_of(i);
    if (!residence) continue;
    const bool was_away = std::exchange(engine.is_away, residence->bytes == 0);
    if (engine.is_away) continue;
    if (was_away) engine.here_since = now;
    if (engine.rules.name != asker) residents.push_back({i, *residence});
  }
  return residents;
}

IdleEngine IdleEngines::Describe(const Resident& resident, Micros now) const {
  const Engine& engine = engines_[resident.place];
  IdleEngine e;
  e.bytes = resident.residence.bytes;
  e.idle = engine.idle_since == kNotIdle ? 0 : now - engine.idle_since;
  e.here = now - engine.here_since;
  e.activation = resident.residence.activation;
  e.slo_ttft = engine.rules.slo_ttft;
  e.chance = engine.times.ChanceSoon(e.idle, all_);
  return e;
}

IdleEngine IdleEngines::DescribeAsker(absl::string_view asker, Micros now,
                                      const ResidenceOf& residence_of) const {
  for (size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i].rules.name != asker) continue;
    Residence residence = residence_of(i).value_or(Residence{});
    residence.bytes = residence.away_bytes;
    return Describe({i, residence}, now);
  }
  return {};
}

absl::optional<size_t> IdleEngines::WhoLeaves(RoomFor reason,
                                              absl::string_view asker,
                                              Micros now,
                                              const ResidenceOf& residence_of) {
  std::vector<size_t> places;
  std::vector<IdleEngine> idle;
  for (const Resident& resident : Residents(asker, now, residence_of)) {
    if (engines_[resident.place].idle_since == kNotIdle) continue;
    places.push_back(resident.place);
    idle.push_back(Describe(resident, now));
  }
  const auto first = evict::WhoLeaves(policy_, reason, idle,
                                      DescribeAsker(asker, now, residence_of));
  return first ? absl::optional<size_t>(places[*first]) : absl::nullopt;
}

bool IdleEngines::LetOneRest(absl::string_view asker, Micros now,
                             const ResidenceOf& residence_of) {
  bool any = false;
  size_t longest = kNone;
  for (const Resident& resident : Residents(asker, now, residence_of)) {
    const Engine& engine = engines_[resident.place];
    if (!engine.is_busy) continue;
    any = true;
    if (Rests(resident.place, now)) {  // until it has left
      longest = resident.place;
      break;
    }
    const Micros stays = kStays * resident.residence.activation;
    if (now - engine.here_since < stays) continue;
    if (longest == kNone || engine.here_since < engines_[longest].here_since) {
      longest = resident.place;
    }
  }
  if (longest != kNone) {
    resting_ = longest;
    rest_until_ = now + kRest;
  }
  return any;
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
