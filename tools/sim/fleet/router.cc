#include "tools/sim/fleet/router.h"

#include <algorithm>
#include <string>

#include "daemon/proxy/choice/model_on_gpu.h"

namespace fineserve::sim {

Router::Router(const World& world) : world_(world) {
  for (uint32_t m = 0; m < world.models.size(); ++m) {
    std::vector<Known>& known = known_.emplace_back();
    for (const Replica& r : world.models[m].replicas) {
      known.emplace_back().target_rate = r.target_rate;
    }
    greets_ = greets_ ||
              (known.size() > 1 && !HasRates(m) && !world.least_load) ||
              world.planning.has_value();
  }
}

bool Router::HasRates(uint32_t model) const {
  return std::any_of(known_[model].begin(), known_[model].end(),
                     [](const Known& k) { return k.target_rate > 0; });
}

void Router::FollowPlan(const wire::NewestPlan& plan, const Serves& serves) {
  for (size_t m = 0; m < known_.size(); ++m) {
    for (size_t r = 0; r < known_[m].size(); ++r) {
      const Replica& replica = world_.models[m].replicas[r];
      const auto& setups = world_.gpus[replica.gpu].engines;
      proxy::ModelOnGpu standing;
      for (const Replica::Engine& e : replica.engines) {
        const std::string& name = setups[e.place].name;
        standing.Add(plan.LetsIn(name), serves(replica.gpu, e.place),
                     plan.TargetRate(name, e.target_rate));
      }
      known_[m][r].trouble = standing.Trouble(/*has_daemon=*/true);
      known_[m][r].target_rate = standing.target_rate();
    }
  }
}

void Router::Hello(Micros now, const Drain& drain) {
  for (uint32_t m = 0; m < known_.size(); ++m) {
    const WorldModel& model = world_.models[m];
    if (known_[m].size() < 2 || HasRates(m)) continue;
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
        {r, known.trouble, cost, known.target_rate, &known.due});
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
