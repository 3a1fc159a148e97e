#include "daemon/scheduling/local/policy/fcfs_policy.h"

namespace fineserve::sched {
namespace {

std::pair<Micros, RequestId> Turn(const Queued& request) {
  return {request.arrival, request.waiting.id};
}

// Returns the engine with the least predicted TTFT of those that take the
// request.
Prospect BestThatTakes(Host* host, const Queued& request, Micros now) {
  Prospect best;
  for (const ReplicaId engine : host->EnginesOf(request.model)) {
    if (!host->Takes(engine, request, now)) continue;
    const Micros ttft = host->Predict(engine, now)(request.waiting.tokens);
    if (ttft < best.ttft) best = {engine, ttft};
  }
  return best;
}

}  // namespace

void FcfsPolicy::Add(const Queued& request) {
  queues_[request.model].emplace(Turn(request), request);
}

void FcfsPolicy::Remove(const Queued& request) {
  queues_[request.model].erase(Turn(request));
}

void FcfsPolicy::Decide(Micros now, Host* host) {
  for (auto& [model, queue] : queues_) {
    while (!queue.empty()) {
      const Queued first = queue.begin()->second;
      const Prospect best = BestThatTakes(host, first, now);
      if (best.ttft == kNever) break;
      queue.erase(queue.begin());
      host->Start(first, best.engine, now);
    }
  }
}

}  // namespace fineserve::sched
