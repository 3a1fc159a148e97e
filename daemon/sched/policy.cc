#include "daemon/sched/policy.h"

namespace fineserve::sched {

Prospect BestProspect(const Host& host, ModelId model, uint64_t prompt_tokens,
                      Micros now) {
  Prospect best;
  for (const EngineId engine : host.EnginesOf(model)) {
    const Micros ttft = host.Predict(engine, now)(prompt_tokens);
    if (ttft < best.ttft) best = {engine, ttft};
  }
  return best;
}

bool Late(const Waiting& request, Prospect best, Micros now) {
  const Micros ttft = best.ttft == kNever ? 0 : best.ttft;
  return now + ttft >= request.deadline;
}

}  // namespace fineserve::sched
