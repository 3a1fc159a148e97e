#include "daemon/fineserved/admission/waiting_in_vain.h"

#include <cstdint>

namespace fineserve::admission {
namespace {

using sched::ModelId;

using TakesNone = absl::FunctionRef<bool(const std::string& engine)>;

// True if the model has engines here and none of them takes requests.
bool IsClosed(ModelId model, const std::vector<ServingEngine>& engines,
              TakesNone takes_none) {
  bool any = false;
  for (const ServingEngine& engine : engines) {
    if (engine.model != model) continue;
    any = true;
    if (!takes_none(engine.name)) return false;
  }
  return any;
}

}  // namespace

std::set<sched::RequestId> WaitingInVain(
    const std::vector<ServingEngine>& engines, TakesNone takes_none,
    const sched::LocalScheduler& scheduler) {
  std::set<ModelId> leave;
  for (uint32_t m = 0; m < scheduler.models(); ++m) {
    const ModelId model{m};
    const bool waits = scheduler.Figures(model).queued > 0;
    if (waits && IsClosed(model, engines, takes_none)) leave.insert(model);
  }
  std::set<sched::RequestId> waiting;
  if (leave.empty()) return waiting;
  for (const sched::RequestView& r : scheduler.Requests()) {
    const sched::Submission& asked = *r.asked;
    if (!r.engine && leave.count(asked.model) > 0) waiting.insert(asked.id);
  }
  return waiting;
}

}  // namespace fineserve::admission
