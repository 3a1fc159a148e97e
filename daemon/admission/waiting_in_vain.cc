#include "daemon/admission/waiting_in_vain.h"

#include <cstdint>

namespace fineserve::admission {
namespace {

using sched::ModelId;

// Whether the model has an engine here, and the plan ends all that it has.
bool Ends(ModelId model, const std::vector<ServingEngine>& engines,
          const wire::NewestPlan& plan) {
  bool any = false;
  for (const ServingEngine& engine : engines) {
    if (engine.model != model) continue;
    any = true;
    if (!plan.Ends(engine.name)) return false;
  }
  return any;
}

}  // namespace

std::set<sched::RequestId> WaitingInVain(
    const std::vector<ServingEngine>& engines, const wire::NewestPlan& plan,
    const sched::LocalScheduler& scheduler) {
  std::set<ModelId> leave;
  for (uint32_t m = 0; m < scheduler.models(); ++m) {
    const ModelId model{m};
    const bool waits = scheduler.Figures(model).queued > 0;
    if (waits && Ends(model, engines, plan)) leave.insert(model);
  }
  std::set<sched::RequestId> waiting;
  if (leave.empty()) return waiting;
  for (const sched::RequestView& r : scheduler.Requests()) {
    if (!r.engine && leave.count(r.model) > 0) waiting.insert(r.id);
  }
  return waiting;
}

}  // namespace fineserve::admission
