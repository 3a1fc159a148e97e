#include "tools/lab/sim/bound/next_request.h"

#include <algorithm>
#include <utility>

namespace fineserve::sim {

void TellNextRequests(const workload::Trace& trace,
                      const std::vector<uint32_t>& model_of, World* world) {
  using Times = std::vector<std::vector<Micros>>;
  std::vector<Times> of_gpu;
  for (const GpuSetup& gpu : world->gpus) {
    of_gpu.emplace_back(gpu.models.size());
  }
  for (const workload::Arrival& a : trace.arrivals) {
    for (const Replica& r : world->models[model_of[a.model]].replicas) {
      of_gpu[r.gpu][r.model].push_back(static_cast<Micros>(a.at_s * 1e6));
    }
  }
  for (size_t g = 0; g < world->gpus.size(); ++g) {
    if (!world->gpus[g].eviction) continue;
    world->gpus[g].eviction->next_request = [times = std::move(of_gpu[g])](
                                                uint32_t model, Micros now) {
      const std::vector<Micros>& of = times[model];
      const auto next = std::upper_bound(of.begin(), of.end(), now);
      return next == of.end() ? kNever : *next;
    };
  }
}

}  // namespace fineserve::sim
