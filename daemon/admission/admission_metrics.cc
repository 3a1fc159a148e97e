// AdmissionService's counts, for Prometheus.

#include "daemon/admission/admission_service.h"

namespace fineserve::admission {

using sched::ModelId;
using sched::Number;
using sched::ReplicaId;

namespace {

static_assert(std::size(metrics::kRejectionReasons) == sched::kRefusals);
static_assert(std::size(metrics::kConnectionFaultReasons) ==
              wire::kConnectionFaults);

metrics::ModelFigures Measure(const sched::ModelSpec& spec,
                              const sched::ModelFigures& from) {
  metrics::ModelFigures to;
  to.name = spec.name;
  to.slo_ttft_s = static_cast<double>(spec.slo_ttft) * 1e-6;
  to.queued = from.queued - from.tied;
  to.degraded = from.degraded - from.tied_degraded;
  to.queued_tokens = from.queued_tokens - from.tied_tokens;
  to.admitted = from.admitted;
  to.admitted_degraded = from.admitted_degraded;
  to.cancelled = from.cancelled;
  to.rejected = from.rejected;
  to.on_time = from.on_time;
  to.late = from.late;
  return to;
}

void Measure(const sched::EngineFigures& from, metrics::FleetEngine* to) {
  to->running = from.running;
  to->most_running = from.running + from.caps.requests;
  to->kv_tokens = from.held_tokens + from.free_tokens;
  to->held_tokens = from.held_tokens;
  to->backlog_tokens = from.backlog_tokens;
  to->kappa = from.kappa;
}

}  // namespace

metrics::AdmissionFigures AdmissionService::Measure() const {
  metrics::AdmissionFigures figures;
  figures.proxies = static_cast<uint32_t>(peers_.size());
  figures.refused_connections = daemon_.ask_gpu().refused;
  for (uint32_t m = 0; m < scheduler_.models(); ++m) {
    figures.models.push_back(admission::Measure(
        scheduler_.model(ModelId{m}), scheduler_.Figures(ModelId{m})));
  }
  const auto known = scheduler_.Engines(Now());
  for (uint32_t i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    metrics::FleetEngine& told = figures.engines.emplace_back();
    told.name = engine.name;
    told.model = scheduler_.model(engine.model).name;
    told.serves = Serves(engine.name);
    told.on_request = on_request_.count(engine.name) != 0;
    told.drains = daemon_.drained->Has(engine.name) || IsStopped(engine.name);
    told.troubles = static_cast<uint32_t>(TroublesOf(engine).size());
    const auto its = known.find(ReplicaId{i});
    if (its != known.end()) admission::Measure(its->second, &told);
  }
  return figures;
}

}  // namespace fineserve::admission
