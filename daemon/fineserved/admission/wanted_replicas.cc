#include "daemon/fineserved/admission/wanted_replicas.h"

#include <algorithm>
#include <cmath>

#include "daemon/scheduling/global/model/footprint.h"

namespace fineserve::admission {
namespace {

constexpr double kSecondsOfUs = 1e-6;

// Returns the largest number of mean requests that a replica may run at once.
uint32_t MostTogether(const sched::ModelSpec& model,
                      const ReplicaAbility& ability, const Demand& demand) {
  uint64_t most = model.max_batch;
  if (model.slo_tpot != 0) {
    most = std::min<uint64_t>(
        most,
        sched::SloBatch(model.profile, ability.decode_kappa, model.slo_tpot));
  }
  if (ability.kv_tokens != 0) {
    const double request = demand.prompt_tokens + demand.output_tokens;
    most = std::min(
        most, static_cast<uint64_t>(static_cast<double>(ability.kv_tokens) /
                                    std::max(request, 1.0)));
  }
  return static_cast<uint32_t>(std::max<uint64_t>(most, 1));
}

// Returns the figures that a measurement of a batch of mean requests would
// give.
plan::OperatingPoint PointAt(const sched::ModelSpec& model,
                             const ReplicaAbility& ability, uint32_t prompt,
                             uint32_t batch) {
  sched::Predictor prefill;
  prefill.profile = model.profile;
  prefill.chunk_tokens = model.chunk_tokens;
  prefill.kappa = ability.prefill_kappa;
  const sched::Micros ttft = prefill(uint64_t{batch} * prompt);
  const double step =
      ability.decode_kappa *
      (model.profile.base_us + model.profile.per_sequence_us * batch);
  return {batch, prompt, static_cast<double>(ttft) * kSecondsOfUs,
          std::max(step, 1.0) * kSecondsOfUs};
}

// Builds a profile of batches up to `most`, each about a fifth larger than the
// one before.
plan::Profile ProfileOf(const sched::ModelSpec& model,
                        const ReplicaAbility& ability, uint32_t prompt,
                        uint32_t most) {
  plan::Profile profile;
  for (uint32_t batch = 1; batch < most; batch += batch / 5 + 1) {
    profile.points.push_back(PointAt(model, ability, prompt, batch));
  }
  profile.points.push_back(PointAt(model, ability, prompt, most));
  return profile;
}

}  // namespace

uint32_t WantedReplicas(const sched::ModelSpec& model,
                        const ReplicaAbility& ability, const Demand& demand,
                        uint32_t most) {
  if (demand.rate <= 0) return 0;
  const auto prompt =
      static_cast<uint32_t>(std::clamp(demand.prompt_tokens, 1.0, 1e9));
  plan::ModelDemand sized;
  sized.rate = demand.rate;
  sized.prompt_tokens = prompt;
  sized.output_tokens = demand.output_tokens;
  sized.slo_ttft_s = static_cast<double>(model.slo_ttft) * kSecondsOfUs;
  sized.max_batch = MostTogether(model, ability, demand);
  return plan::SizeModel(sized,
                         ProfileOf(model, ability, prompt, sized.max_batch),
                         plan::Tier::kPaper, most)
      .replicas;
}

}  // namespace fineserve::admission
