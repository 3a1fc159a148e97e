#include "daemon/scheduling/evict/idle_engines.h"

#include <algorithm>
#include <utility>

namespace fineserve::evict {

using sched::Micros;

namespace {

// True for the reasons for which busy engines rest once no other engine is
// idle.
bool OthersWait(RoomFor reason) {
  return reason == RoomFor::kRequests || reason == RoomFor::kStart;
}

}  // namespace

IdleEngines::IdleEngines(EvictionPolicy policy, std::vector<Rules> rules)
    : policy_(policy) {
  for (Rules& rule : rules) {
    any_ = any_ || rule.may_evict;
    engines_.push_back({std::move(rule)});
  }
}

void IdleEngines::Saw(size_t index, Activity activity, Micros now,
                      const absl::optional<Residence>& residence) {
  Engine& engine = engines_[index];
  engine.is_busy = activity == Activity::kBusy;
  engine.residence = residence;
  if (residence) {
    const bool was_away = std::exchange(engine.is_away, residence->bytes == 0);
    if (was_away && !engine.is_away) engine.here_since = now;
    if (!engine.is_away) engine.is_out = false;
  }
  if (engine.is_busy) engine.is_out = engine.is_ahead = false;
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
    const bool is_off = engine.residence && engine.residence->is_off;
    const Micros after = is_off ? kOffLeaves : engine.rules.evict_after;
    if (!engine.rules.may_evict || after == 0) continue;
    if (engine.idle_since == kNotIdle) continue;
    if (engine.residence && engine.residence->has_declined) continue;
    if (now - engine.asked < after) continue;
    engine.asked = now;
    due.push_back(i);
  }
  return due;
}

std::vector<size_t> IdleEngines::Residents(RoomFor reason,
                                           absl::string_view asker,
                                           const Lack& lack) const {
  std::vector<size_t> residents;
  for (size_t i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    const bool is_here = engine.residence && engine.residence->bytes != 0;
    if (!engine.rules.may_evict || !is_here || engine.rules.name == asker ||
        lack.Frees(*engine.residence) == 0 ||
        (engine.residence->has_declined && !OthersWait(reason))) {
      continue;
    }
    residents.push_back(i);
  }
  return residents;
}

IdleEngine IdleEngines::Describe(size_t index, uint64_t bytes,
                                 Micros now) const {
  const Engine& engine = engines_[index];
  IdleEngine e;
  e.bytes = bytes;
  e.idle = engine.idle_since == kNotIdle ? 0 : now - engine.idle_since;
  e.here = engine.is_ahead ? e.idle : now - engine.here_since;
  e.activation = engine.residence ? engine.residence->activation : 0;
  e.slo_ttft = engine.rules.slo_ttft;
  e.chance = engine.times.ChanceSoon(e.idle, all_);
  e.rests = Rests(index, now);
  e.has_declined = engine.residence && engine.residence->has_declined;
  return e;
}

IdleEngine IdleEngines::DescribeAsker(absl::string_view asker,
                                      Micros now) const {
  for (size_t i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    if (engine.rules.name != asker) continue;
    return Describe(i, engine.residence ? engine.residence->away_bytes : 0,
                    now);
  }
  return {};
}

absl::optional<size_t> IdleEngines::WhoLeaves(RoomFor reason,
                                              absl::string_view asker,
                                              Lack lack, Micros now) const {
  std::vector<size_t> places;
  std::vector<IdleEngine> idle;
  uint64_t of_busy = 0;
  for (const size_t i : Residents(reason, asker, lack)) {
    if (engines_[i].idle_since == kNotIdle) {
      of_busy += lack.Frees(*engines_[i].residence);
      continue;
    }
    places.push_back(i);
    idle.push_back(Describe(i, engines_[i].residence->bytes, now));
  }
  const IdleEngine for_whom = DescribeAsker(asker, now);
  uint64_t all = OthersWait(reason) ? of_busy : 0;
  for (size_t n = 0; n < idle.size(); ++n) {
    if (!MayLeave(policy_, reason, idle[n], for_whom)) continue;
    all += lack.Frees(*engines_[places[n]].residence);
  }
  if (all < lack.amount()) return absl::nullopt;
  const auto first = evict::WhoLeaves(policy_, reason, idle, for_whom);
  return first ? absl::optional<size_t>(places[*first]) : absl::nullopt;
}

bool IdleEngines::any_is_out() const {
  return policy_ == EvictionPolicy::kSlack &&
         std::any_of(engines_.begin(), engines_.end(),
                     [](const Engine& e) { return e.is_out; });
}

absl::optional<size_t> IdleEngines::BringAhead(
    uint64_t free_bytes, absl::FunctionRef<bool(size_t engine)> may_come,
    Micros now) {
  if (!any_is_out()) return absl::nullopt;
  size_t first = kNone;
  double most = 0;
  for (size_t i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    if (!engine.is_out || engine.idle_since == kNotIdle || !engine.residence ||
        engine.residence->spans_gpus || !may_come(i)) {
      continue;
    }
    const uint64_t bytes = engine.residence->away_bytes;
    if (bytes == 0 || bytes > free_bytes / 2) continue;
    const double harm =
        Harm(Describe(i, bytes, now)) / static_cast<double>(bytes);
    if (harm <= most) continue;
    most = harm;
    first = i;
  }
  if (first == kNone) return absl::nullopt;
  engines_[first].is_ahead = true;
  return first;
}

bool IdleEngines::HasJustCome(const Engine& engine, Micros now) const {
  return now - engine.here_since < kStays * engine.residence->activation;
}

bool IdleEngines::LetRest(size_t index, Micros now) {
  const Engine& engine = engines_[index];
  if (!Rests(index, now) &&
      (RestEnds(now) || !engine.is_busy || !engine.rules.may_evict ||
       !engine.residence || HasJustCome(engine, now))) {
    return false;
  }
  resting_ = index;
  rest_until_ = now + kRest;
  return true;
}

bool IdleEngines::LetOneRest(absl::string_view asker, Lack lack, Micros now) {
  const auto its =
      std::find_if(engines_.begin(), engines_.end(),
                   [&](const Engine& e) { return e.rules.name == asker; });
  bool any = false;
  uint64_t all = 0;
  size_t longest = kNone;
  for (const size_t i : Residents(RoomFor::kRequests, asker, lack)) {
    const Engine& engine = engines_[i];
    all += lack.Frees(*engine.residence);
    // Replicas of one model would keep evicting each other.
    const bool is_replica =
        its != engines_.end() && engine.rules.model == its->rules.model;
    if (!engine.is_busy || is_replica) continue;
    any = true;
    if (Rests(i, now)) {  // until it has left
      longest = i;
      break;
    }
    if (HasJustCome(engine, now)) continue;
    const auto turn = [](const Engine& e) {
      return std::make_pair(e.residence->has_declined, e.here_since);
    };
    if (longest == kNone || turn(engine) < turn(engines_[longest])) {
      longest = i;
    }
  }
  if (!any || all < lack.amount()) return false;
  if (longest != kNone) {
    resting_ = longest;
    rest_until_ = now + kRest;
  }
  return true;
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
