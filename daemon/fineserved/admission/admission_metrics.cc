// AdmissionService's counts, for Prometheus.

#include <algorithm>

#include "daemon/fineserved/admission/admission_service.h"
#include "daemon/fineserved/admission/wanted_replicas.h"

namespace fineserve::admission {

using sched::ModelId;
using sched::Number;
using sched::ReplicaId;

namespace {

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

// Mean κ that was learnt from the engines; 1 if none was learnt.
class MeanKappa {
 public:
  void Add(const sched::Correction& correction) {
    if (correction.sums().observed == 0) return;
    sum_ += correction.kappa();
    ++engines_;
  }
  double mean() const { return engines_ == 0 ? 1 : sum_ / engines_; }

 private:
  double sum_ = 0;
  uint32_t engines_ = 0;
};

void Measure(const sched::EngineFigures& from, metrics::FleetEngine* to) {
  to->running = from.running;
  to->most_running = from.running + from.caps.requests;
  to->kv_tokens = from.held_tokens + from.free_tokens;
  to->held_tokens = from.held_tokens;
  to->backlog_tokens = from.backlog_tokens;
  to->kappa = from.kappa;
}

}  // namespace

// Requests that wait here should start within the window. A request that waits
// at several daemons counts only at the daemon that was asked first.
void AdmissionService::MeasureWanted(
    ModelId model, const std::map<ReplicaId, sched::EngineFigures>& engines,
    metrics::ModelFigures* figures) const {
  Demand demand = window_.Of(figures->name);
  if (proxies_.empty() || demand.seconds < kLeastWindowS) return;
  ReplicaAbility ability;
  uint32_t here = 0, running = 0;
  MeanKappa prefill, decode;
  for (uint32_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i].model != model) continue;
    ++here;
    const sched::Corrections learnt = scheduler_.Learnt(ReplicaId{i});
    prefill.Add(learnt.prefill);
    decode.Add(learnt.decode);
    const auto its = engines.find(ReplicaId{i});
    if (its == engines.end()) continue;
    running += its->second.running;
    ability.kv_tokens = std::max(
        ability.kv_tokens, its->second.held_tokens + its->second.free_tokens);
  }
  if (here == 0) return;
  ability.prefill_kappa = prefill.mean();
  ability.decode_kappa = decode.mean();
  const sched::ModelFigures known = scheduler_.Figures(model);
  if (demand.output_tokens == 0) demand.output_tokens = known.expected_output;
  demand.rate += figures->queued / kWindowS;
  const uint32_t listed = listed_.at(model);
  const uint32_t wanted =
      std::max(WantedReplicas(scheduler_.model(model), ability, demand,
                              listed + kMostUnlisted),
               std::min(running, 1u));
  figures->wanted_replicas = std::min(wanted, listed);
  figures->unlisted_replicas = wanted - *figures->wanted_replicas;
}

metrics::AdmissionFigures AdmissionService::Measure() const {
  metrics::AdmissionFigures figures;
  figures.proxies = static_cast<uint32_t>(proxies_.all().size());
  figures.refused_connections = daemon_.ask_gpu().refused;
  const auto known = scheduler_.Engines(Now());
  for (uint32_t m = 0; m < scheduler_.models(); ++m) {
    figures.models.push_back(admission::Measure(
        scheduler_.model(ModelId{m}), scheduler_.Figures(ModelId{m})));
    MeasureWanted(ModelId{m}, known, &figures.models.back());
  }
  for (uint32_t i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    metrics::FleetEngine& reported = figures.engines.emplace_back();
    reported.name = engine.name;
    reported.model = scheduler_.model(engine.model).name;
    reported.serves = proxies_.Serves(engine.name);
    reported.scaled = scaled_.count(engine.name) != 0;
    reported.on_request = on_request_.count(engine.name) != 0;
    reported.drains =
        daemon_.drained->Has(engine.name) || proxies_.IsStopped(engine.name);
    reported.troubles = static_cast<uint32_t>(TroublesOf(engine).size());
    const auto its = known.find(ReplicaId{i});
    if (its != known.end()) admission::Measure(its->second, &reported);
    reported.dropped_bytes = kv_[i].dropped.bytes;
    reported.dropped_s = DroppedForS(i);
    reported.peer_read_bytes = peer_read_bytes_[i];
  }
  return figures;
}

}  // namespace fineserve::admission
