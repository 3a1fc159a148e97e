#include "tools/lab/sim/bound/world_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/lab/sim/bound/clairvoyant.h"
#include "tools/lab/sim/gpu/setup.h"

namespace fineserve::sim {
namespace {

// Returns the largest joint speed of up to `engines` engines, in µs of one
// engine's work per µs.
double Speed(const Slowdown& slowdown, size_t engines) {
  double most = 0;
  for (size_t n = 1; n <= engines; ++n) {
    most = std::max(most, static_cast<double>(n) / slowdown.of(n));
  }
  return most;
}

// The lowest costs of one prompt among the engines of a model.
struct Best {
  double work_us = 0;  // the least of a machine
  double alone_us = INFINITY;
};

Best BestOf(const World& world, const WorldModel& model,
            const workload::Lengths& lengths) {
  Best best = {INFINITY};
  for (const Replica& r : model.replicas) {
    for (const EngineSetup& e : world.gpus[r.gpu].engines) {
      if (e.model != r.model) continue;
      if (lengths.input + lengths.output > e.longest_tokens) continue;
      const uint32_t tokens = lengths.input - e.CachedTokens(lengths.input);
      const double chunk = e.limits.chunk_tokens;
      const double full = e.step_time.Us(chunk, 0);
      const double base = e.step_time.Us(0, 0);
      const double per_token = (full - base) / chunk;
      const double factor = world.gpus[r.gpu].slowdown.of(1);
      best.work_us = std::min(best.work_us, tokens * full / chunk);
      best.alone_us = std::min(
          best.alone_us,
          factor * (std::ceil(tokens / chunk) * base + tokens * per_token));
    }
  }
  return best;
}

// Groups of models whose engines share GPUs; one model represents each group.
class Groups {
 public:
  explicit Groups(const World& world) : parent_(world.models.size()) {
    std::iota(parent_.begin(), parent_.end(), 0u);
    std::vector<uint32_t> on(world.gpus.size(), UINT32_MAX);
    for (uint32_t m = 0; m < parent_.size(); ++m) {
      for (const Replica& r : world.models[m].replicas) {
        if (on[r.gpu] == UINT32_MAX) on[r.gpu] = m;
        parent_[Of(m)] = Of(on[r.gpu]);
      }
    }
  }
  uint32_t Of(uint32_t model) {
    while (parent_[model] != model) {
      model = parent_[model] = parent_[parent_[model]];
    }
    return model;
  }

 private:
  std::vector<uint32_t> parent_;
};

double SpeedOfModel(const World& world, const WorldModel& model) {
  double speed = 0;
  for (const Replica& r : model.replicas) {
    const GpuSetup& gpu = world.gpus[r.gpu];
    const auto engines = static_cast<size_t>(
        std::count_if(gpu.engines.begin(), gpu.engines.end(),
                      [&](const auto& e) { return e.model == r.model; }));
    speed += Speed(gpu.slowdown, engines);
  }
  return speed;
}

std::vector<std::vector<Job>> JobsByModel(
    const World& world, const workload::Trace& trace,
    const std::vector<uint32_t>& model_of) {
  std::vector<std::vector<Job>> jobs(world.models.size());
  for (const workload::Arrival& a : trace.arrivals) {
    const uint32_t m = model_of[a.model];
    const WorldModel& model = world.models[m];
    if (model.replicas.empty()) continue;
    const PathTimes& path = world.gpus[model.replicas[0].gpu].path;
    const Best best = BestOf(world, model, a.lengths);
    const auto at = static_cast<Micros>(a.at_s * 1e6);
    // The run keeps times in µs, and a first token at its deadline is on time.
    const Micros begin = at + path.ask_us + path.send_us;
    const Micros end =
        at + 1 + static_cast<Micros>(model.slo.ttft_s * 1e6) - path.answer_us;
    if (best.alone_us > static_cast<double>(end - begin)) continue;
    jobs[m].push_back({begin, end, std::max(best.work_us, 1e-3)});
  }
  return jobs;
}

}  // namespace

uint64_t ClairvoyantBound(const World& world, const workload::Trace& trace,
                          const std::vector<uint32_t>& model_of) {
  Groups groups(world);
  std::vector<double> speed(world.models.size(), 0);
  std::vector<bool> counted(world.gpus.size(), false);
  for (uint32_t m = 0; m < world.models.size(); ++m) {
    for (const Replica& r : world.models[m].replicas) {
      if (counted[r.gpu]) continue;
      counted[r.gpu] = true;
      const GpuSetup& gpu = world.gpus[r.gpu];
      speed[groups.Of(m)] += Speed(gpu.slowdown, gpu.engines.size());
    }
  }
  std::vector<double> alone(world.models.size(), 0);
  std::vector<std::vector<Job>> together(world.models.size());
  std::vector<std::vector<Job>> jobs = JobsByModel(world, trace, model_of);
  for (uint32_t m = 0; m < jobs.size(); ++m) {
    const uint32_t group = groups.Of(m);
    alone[group] += MostOnTime(jobs[m], SpeedOfModel(world, world.models[m]));
    together[group].insert(together[group].end(), jobs[m].begin(),
                           jobs[m].end());
    jobs[m] = {};
  }
  uint64_t bound = 0;
  for (uint32_t g = 0; g < together.size(); ++g) {
    if (together[g].empty()) continue;
    const double group = MostOnTime(std::move(together[g]), speed[g]);
    bound += static_cast<uint64_t>(
        std::floor(std::min(group, alone[g]) + kRounding));
  }
  return bound;
}

}  // namespace fineserve::sim
