#include "tools/lab/sim/fleet/router.h"

#include <string>

#include "daemon/proxy/replica_choice/replica_order.h"

namespace fineserve::sim {

Router::Router(const World& world) : world_(world), of_gpu_(world.gpus.size()) {
  for (uint32_t m = 0; m < world.models.size(); ++m) {
    std::vector<Known>& known = known_.emplace_back();
    for (const Replica& r : world.models[m].replicas) {
      known.emplace_back().target_rate = r.target_rate;
    }
    greets_ = greets_ || known.size() > 1 || world.planning.has_value();
  }
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
      known_[m][r].trouble =
          standing.Trouble(/*has_daemon=*/true, /*is_away=*/false);
      known_[m][r].target_rate = standing.target_rate();
    }
  }
}

void Router::Hello(Micros now, const Waits& waits) {
  for (uint32_t m = 0; m < known_.size(); ++m) {
    const WorldModel& model = world_.models[m];
    if (known_[m].size() < 2) continue;
    for (size_t r = 0; r < known_[m].size(); ++r) {
      const sched::Outlook wait = waits(model.replicas[r]);
      known_[m][r].wait = {static_cast<double>(wait.us), wait.full, wait.away,
                           Nanoseconds(now)};
    }
  }
}

proxy::TiedRequest Router::Tie(uint32_t m, Micros now) {
  const WorldModel& model = world_.models[m];
  candidates_.clear();
  for (size_t r = 0; r < model.replicas.size(); ++r) {
    Known& known = known_[m][r];
    const bool is_away = known.wait.away();
    const auto load = static_cast<double>(
        is_away ? of_gpu_[model.replicas[r].gpu] : known.load);
    const double cost =
        world_.least_load
            ? load
            : known.wait.Us(model.profile.per_token_us, Nanoseconds(now));
    candidates_.push_back(
        {.place = r,
         .trouble = known.trouble + (is_away ? proxy::ModelOnGpu::kAway : 0),
         .full = known.wait.full(),
         .cost = cost,
         .load = load,
         .target_rate = known.target_rate,
         .due = &known.due});
  }
  const bool charged =
      candidates_.size() > 1 && proxy::OrderReplicas(&candidates_);
  return proxy::TiedRequest(candidates_, charged);
}

void Router::Waiting(uint32_t model, uint32_t replica, Micros start_us,
                     Micros now) {
  known_[model][replica].wait = {static_cast<double>(start_us), /*full=*/true,
                                 /*away=*/false, Nanoseconds(now)};
}

void Router::Repay(uint32_t model, uint32_t charged, uint32_t replica) {
  known_[model][charged].due += 1;
  known_[model][replica].due -= 1;
}

void Router::Ended(uint32_t gpu) {
  for (size_t m = 0; m < known_.size(); ++m) {
    for (size_t r = 0; r < known_[m].size(); ++r) {
      if (world_.models[m].replicas[r].gpu != gpu) continue;
      known_[m][r].wait.SetFull(false);
    }
  }
}

void Router::Asked(uint32_t model, uint32_t replica, uint32_t prompt_tokens) {
  known_[model][replica].wait.Sent(prompt_tokens);
}

void Router::Load(uint32_t model, uint32_t replica, int64_t tokens) {
  known_[model][replica].load += tokens;
  of_gpu_[world_.models[model].replicas[replica].gpu] += tokens;
}

}  // namespace fineserve::sim
