#include "daemon/scheduling/local/policy/policy.h"

namespace fineserve::sched {

Prospect BestProspect(const Host& host, ModelId model, uint64_t prompt_tokens,
                      Micros now) {
  Prospect best;
  for (const ReplicaId engine : host.EnginesOf(model)) {
    const Micros ttft = host.Predict(engine, now)(prompt_tokens);
    if (ttft < best.ttft) best = {engine, ttft};
  }
  return best;
}

Micros LateAt(const Host& host, const Queued& request, Micros now) {
  const Prospect best =
      BestProspect(host, request.model, request.waiting.tokens, now);
  return request.waiting.deadline - (best.ttft == kNever ? 0 : best.ttft);
}

}  // namespace fineserve::sched
