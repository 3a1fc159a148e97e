#include "tools/sim/fleet/router.h"

#include <algorithm>

namespace fineserve::sim {
namespace {

uint64_t Nanoseconds(Micros us) { return static_cast<uint64_t>(us) * 1000; }

bool HasRates(const WorldModel& model) {
  return std::any_of(model.replicas.begin(), model.replicas.end(),
                     [](const Replica& r) { return r.target_rate > 0; });
}

}  // namespace

Router::Router(const World& world) : world_(world) {
  for (const WorldModel& model : world.models) {
    known_.emplace_back(model.replicas.size());
    greets_ = greets_ || (model.replicas.size() > 1 && !HasRates(model) &&
                          !world.least_load);
  }
}

void Router::Hello(Micros now, const Drain& drain) {
  for (size_t m = 0; m < known_.size(); ++m) {
    const WorldModel& model = world_.models[m];
    if (known_[m].size() < 2 || HasRates(model)) continue;
    for (size_t r = 0; r < known_[m].size(); ++r) {
      known_[m][r].wait = {static_cast<double>(drain(model.replicas[r])),
                           Nanoseconds(now)};
    }
  }
}

const std::vector<uint32_t>& Router::Order(uint32_t m, Micros now) {
  const WorldModel& model = world_.models[m];
  order_.clear();
  if (model.replicas.size() == 1) {
    order_.push_back(0);
    return order_;
  }
  candidates_.clear();
  for (size_t r = 0; r < model.replicas.size(); ++r) {
    Known& known = known_[m][r];
    const double cost =
        world_.least_load
            ? static_cast<double>(known.load)
            : known.wait.Us(model.profile.per_token_us, Nanoseconds(now));
    candidates_.push_back(
        {r, 0, cost, model.replicas[r].target_rate, &known.due});
  }
  proxy::OrderReplicas(&candidates_);
  for (const proxy::Candidate& c : candidates_) {
    order_.push_back(static_cast<uint32_t>(c.place));
  }
  return order_;
}

void Router::Asked(uint32_t model, uint32_t replica, uint32_t prompt_tokens) {
  known_[model][replica].wait.Sent(prompt_tokens);
}

void Router::Load(uint32_t model, uint32_t replica, int64_t tokens) {
  known_[model][replica].load += tokens;
}

}  // namespace fineserve::sim
