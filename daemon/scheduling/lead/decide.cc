#include "daemon/scheduling/lead/decide.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/scheduling/global/make_plan.h"

namespace fineserve::lead {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr double kSame = 0.01;

using Gpus = std::map<std::string, GpuMemory>;
using Demands = std::map<std::string, Demand>;

plan::Options Quick(const std::string& policy) {
  plan::Options options;
  options.policy = policy;
  options.reasons = false;
  options.exact_steps = 0;
  options.priced_gpus = 0;
  return options;
}

double Ratio(double from, double to) {
  if (from <= 0) {
    return to > 0 ? std::numeric_limits<double>::infinity() : 0;
  }
  return to / from - 1;
}

// GPUs of each model's replicas.
using Places = std::map<std::string, std::set<GpuGroup>>;

GpuGroup Ascending(GpuGroup gpus) {
  std::sort(gpus.begin(), gpus.end());
  return gpus;
}

Places PlacesOf(const plan::Plan& plan) {
  Places places;
  for (const plan::PlannedReplica& r : plan.replicas) {
    if (!r.gpus.empty()) places[r.model].insert(Ascending(r.gpus));
  }
  return places;
}

// True if the plan runs the model at none of its places.
bool IsWithoutEngine(const config::Fleet& fleet, const StandingPlan& plan,
                     const std::string& model) {
  return std::none_of(
      fleet.engines.begin(), fleet.engines.end(),
      [&](const config::FleetEngine& e) {
        return e.model == model &&
               (!e.is_place || plan.StateOf(e.name) != PlaceState::kOff);
      });
}

// Finds places for models that have no engine: the places of the best plan or,
// if those are not free yet, any others.
class Hosting {
 public:
  Hosting(const config::Fleet& fleet, StandingPlan plan, const Gpus& gpus,
          const Demands& demand, const Experience& experience,
          Decision* decision)
      : fleet_(fleet),
        plan_(std::move(plan)),
        outlook_(fleet, plan_, gpus, demand),
        experience_(experience),
        decision_(decision) {}

  void Host(const std::string& model, const std::set<GpuGroup>& best) {
    for (const GpuGroup& gpus : best) {
      const config::FleetEngine* place = outlook_.PlaceOn(model, gpus);
      if (place == nullptr || experience_.shunned.count(place->name) > 0) {
        continue;
      }
      TryOne(*place);
    }
    const double least =
        std::min(TryAny(model, /*shunned=*/false), TryAny(model, true));
    if (!IsWithoutEngine(fleet_, plan_, model)) return;
    decision_->troubles.push_back(
        least == std::numeric_limits<double>::infinity()
            ? absl::StrCat("model \"", model,
                           "\" has no engine: no daemon of its GPUs answers, "
                           "or it is pinned to another GPU")
            : absl::StrFormat(
                  "model \"%s\" has no engine: %.1f GiB are missing beside the "
                  "pool, in it for its floor, or of host memory for its "
                  "processes; let it run on more GPUs, or give fineserved "
                  "another --pool",
                  model, least / kGib));
  }

 private:
  bool IsPinnedElsewhere(const config::FleetEngine& e) const {
    const auto pin = plan_.pins.find(e.model);
    return pin != plan_.pins.end() && !e.IsOn(pin->second);
  }

  // Returns how many bytes were missing at the place where it fits best; ∞ if
  // no place was tried.
  double TryAny(const std::string& model, bool shunned) {
    double least = std::numeric_limits<double>::infinity();
    for (const config::FleetEngine& e : fleet_.engines) {
      if (!IsWithoutEngine(fleet_, plan_, model)) return least;
      if (!e.is_place || e.model != model || IsPinnedElsewhere(e)) continue;
      if (outlook_.GpusOf(e).empty()) continue;
      if (experience_.silent.count(e.name) > 0) continue;
      if ((experience_.shunned.count(e.name) > 0) != shunned) continue;
      least = std::min(least, outlook_.Shortfall(e));
      TryOne(e);
    }
    return least;
  }

  void TryOne(const config::FleetEngine& e) {
    Place* place = plan_.Find(e.name);
    if (place == nullptr || place->state != PlaceState::kOff) return;
    if (experience_.silent.count(e.name) > 0) return;
    if (outlook_.Shortfall(e) > 0) return;
    place->state = PlaceState::kServe;
    decision_->host.push_back(e.name);
  }

  const config::Fleet& fleet_;
  StandingPlan plan_;  // with what is hosted so far
  const Outlook outlook_;
  const Experience& experience_;
  Decision* const decision_;
};

void HostAll(const config::Fleet& fleet, const StandingPlan& plan,
             const Gpus& gpus, const Demands& demand, const Places& best,
             const Experience& experience, Decision* decision) {
  Hosting hosting(fleet, plan, gpus, demand, experience, decision);
  for (const config::FleetModel& m : fleet.models) {
    if (!IsWithoutEngine(fleet, plan, m.name)) continue;
    const auto its = best.find(m.name);
    hosting.Host(m.name,
                 its == best.end() ? std::set<GpuGroup>() : its->second);
  }
}

// Returns the single steps from a model's present places to its best ones.
std::vector<Move> StepsOf(const Outlook& outlook, const std::string& model,
                          const std::set<GpuGroup>& best) {
  std::vector<std::string> on, off;
  const auto serving = outlook.Serving(model);
  for (const GpuGroup& gpus : best) {
    if (serving.count(gpus) > 0) continue;
    const config::FleetEngine* place = outlook.PlaceOn(model, gpus);
    if (place != nullptr) on.push_back(place->name);
  }
  for (const auto& [gpus, engine] : serving) {
    if (best.count(gpus) == 0) off.push_back(engine);
  }
  std::vector<Move> steps;
  for (size_t i = 0; i < std::max(on.size(), off.size()); ++i) {
    steps.push_back(
        {model, i < on.size() ? on[i] : "", i < off.size() ? off[i] : "", ""});
  }
  return steps;
}

// The gain in words.
std::string Why(const plan::Worth& now, const plan::Worth& best) {
  if (best.hosted > now.hosted) {
    return absl::StrCat("hosts ", best.hosted, " models instead of ",
                        now.hosted);
  }
  const bool same = std::abs(Ratio(now.goodput, best.goodput)) <= kSame;
  return absl::StrFormat(
      "%.4g tokens/s instead of %.4g%s", same ? best.headroom : best.goodput,
      same ? now.headroom : now.goodput, same ? " at twice the rates" : "");
}

std::map<std::string, double> RatesOf(const Outlook& outlook,
                                      const plan::Plan& now) {
  std::map<std::string, double> rates;
  for (const plan::PlannedReplica& r : now.replicas) {
    if (r.gpus.empty()) continue;
    const auto serving = outlook.Serving(r.model);
    const auto engine = serving.find(Ascending(r.gpus));
    if (engine != serving.end()) rates[engine->second] = r.target_rate;
  }
  return rates;
}

// Returns, among the steps towards `best` that fit, the one with which the
// placement is worth most. Returns none if no step makes it worth more than
// `now`, so that the steps end whatever `best` is next time.
absl::optional<Move> BestStep(const config::Fleet& fleet,
                              const Outlook& outlook, const Places& best,
                              const plan::Worth& now,
                              const Experience& experience,
                              const plan::Options& options) {
  absl::optional<Move> chosen;
  plan::Worth most = now;
  for (const auto& [model, gpus] : best) {
    for (const Move& step : StepsOf(outlook, model, gpus)) {
      const config::FleetEngine* to = fleet.Engine(step.to);
      if (to != nullptr && outlook.Shortfall(*to) > 0) continue;
      if (experience.shunned.count(step.to) > 0) continue;
      // The engine that would remain may be the failing one.
      const bool any_fails =
          !experience.failing.empty() || !experience.drained.empty();
      if (to == nullptr && any_fails) continue;
      const auto after =
          plan::DescribeCurrent(outlook.After(step.to, step.from), options);
      if (!after.ok() || !plan::Better(after->worth, most)) continue;
      most = after->worth;
      chosen = step;
    }
  }
  return chosen;
}

// Sorts the engines on most GPUs first, then those with most weights: a small
// engine finds room beside them, but they may find none beside a small engine.
std::vector<std::string> HardestFirst(const config::Fleet& fleet,
                                      const std::set<std::string>& engines) {
  const auto size = [&fleet](const std::string& name) {
    const config::FleetEngine* e = fleet.Engine(name);
    if (e == nullptr) return std::pair<size_t, double>();
    const config::FleetModel& m = fleet.models[fleet.ModelIndex(e->model)];
    return std::pair(e->Gpus().size(),
                     m.measured ? m.measured->weight_bytes : 0);
  };
  std::vector<std::string> order(engines.begin(), engines.end());
  std::stable_sort(order.begin(), order.end(),
                   [&size](const std::string& a, const std::string& b) {
                     return size(a) > size(b);
                   });
  return order;
}

// True if a place of the model serves and stays.
bool ServesElsewhere(const config::Fleet& fleet, const StandingPlan& plan,
                     const Experience& experience, const std::string& model) {
  return std::any_of(fleet.engines.begin(), fleet.engines.end(),
                     [&](const config::FleetEngine& e) {
                       return e.is_place && e.model == model &&
                              plan.StateOf(e.name) == PlaceState::kServe &&
                              experience.drained.count(e.name) == 0 &&
                              experience.down.count(e.name) == 0 &&
                              experience.silent.count(e.name) == 0;
                     });
}

}  // namespace

double RelativeGain(const plan::Worth& from, const plan::Worth& to) {
  if (to.hosted > from.hosted) return std::numeric_limits<double>::infinity();
  if (to.hosted < from.hosted) return -1;
  const double goodput = Ratio(from.goodput, to.goodput);
  return std::abs(goodput) > kSame ? goodput
                                   : Ratio(from.headroom, to.headroom);
}

absl::optional<Move> Rescue(const config::Fleet& fleet, const Outlook& outlook,
                            const StandingPlan& plan,
                            const Experience& experience) {
  std::vector<std::pair<std::string, std::string>> reasons;  // by engine
  for (const std::string& engine : experience.failing) {
    reasons.emplace_back(engine, engine + " does not serve");
  }
  for (const std::string& engine : HardestFirst(fleet, experience.drained)) {
    reasons.emplace_back(engine, "the GPU of " + engine + " is drained");
  }
  for (const auto& [engine, why] : reasons) {
    const config::FleetEngine* from = fleet.Engine(engine);
    if (from == nullptr) continue;
    const auto pin = plan.pins.find(from->model);
    for (const config::FleetEngine& to : fleet.engines) {
      if (!to.is_place || to.model != from->model) continue;
      if (outlook.GpusOf(to).empty()) continue;
      if (plan.StateOf(to.name) != PlaceState::kOff) continue;
      if (experience.shunned.count(to.name) > 0) continue;
      if (experience.silent.count(to.name) > 0) continue;
      if (pin != plan.pins.end() && !to.IsOn(pin->second)) continue;
      if (outlook.Shortfall(to) > 0) continue;
      return Move{from->model, to.name, engine, why};
    }
    if (experience.drained.count(engine) > 0 &&
        ServesElsewhere(fleet, plan, experience, from->model)) {
      return Move{from->model, "", engine, why};
    }
  }
  return absl::nullopt;
}

absl::StatusOr<Decision> Decide(const config::Fleet& fleet,
                                const StandingPlan& plan, const Gpus& gpus,
                                const Demands& demand,
                                const Experience& experience, bool may_move,
                                double least_gain) {
  const Outlook outlook(fleet, plan, gpus, demand);
  const bool may_rescue = !plan.frozen && !plan.move;
  const plan::Options options = Quick(fleet.planner.policy);
  Decision decision;
  decision.troubles = outlook.Troubles();
  for (const std::string& engine : experience.failing) {
    decision.troubles.push_back(absl::StrCat(
        "engine \"", engine, "\" is to serve and does not; see its log"));
  }
  const plan::Snapshot free = outlook.Free();
  if (free.models.empty()) return decision;
  const auto best = plan::MakePlan(free, options);
  if (!best.ok()) return best.status();
  const auto now = plan::DescribeCurrent(outlook.AsItIs(), options);
  if (!now.ok()) return now.status();
  decision.rates = RatesOf(outlook, *now);
  const Places places = PlacesOf(*best);
  HostAll(fleet, plan, gpus, demand, places, experience, &decision);
  if (may_rescue) decision.move = Rescue(fleet, outlook, plan, experience);
  if (decision.move) return decision;
  if (may_rescue) {
    for (const std::string& engine : experience.drained) {
      decision.troubles.push_back(absl::StrCat(
          "engine \"", engine,
          "\" is on a drained GPU, and its model fits nowhere else; let it run "
          "on more GPUs, or fsctl drain --undo"));
    }
  }
  const double gain = RelativeGain(now->worth, best->worth);
  if (!may_move || !decision.host.empty() || gain < least_gain) return decision;
  decision.move =
      BestStep(fleet, outlook, places, now->worth, experience, options);
  const std::string why = Why(now->worth, best->worth);
  if (decision.move) {
    decision.move->why = why;
  } else {
    decision.troubles.push_back(absl::StrCat(
        "a better plan (", why,
        ") cannot be reached: no single step towards it both fits beside "
        "the pools and what runs, and gains; give fineserved a smaller --pool, "
        "or pin a model"));
  }
  return decision;
}

}  // namespace fineserve::lead
