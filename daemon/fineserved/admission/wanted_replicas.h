#ifndef DAEMON_FINESERVED_ADMISSION_WANTED_REPLICAS_H_
#define DAEMON_FINESERVED_ADMISSION_WANTED_REPLICAS_H_

#include <cstdint>

#include "daemon/scheduling/lead/demand_window.h"
#include "daemon/scheduling/local/engine_load.h"

namespace fineserve::admission {

// The speed and the room of one replica of a model, as known to the scheduler.
struct ReplicaAbility {
  // Factors by which first tokens and decode steps take longer than the model's
  // profile says (sched::Corrections).
  double prefill_kappa = 1;
  double decode_kappa = 1;
  uint64_t kv_tokens = 0;  // that it can be sure of; 0: unknown
};

// Returns the least number of replicas of the model that keep up with the
// demand and meet its SLOs. Sizes a model as the planner does
// (plan::SizeModel), from the times that the scheduler predicts: its profile
// (learnt, if the model has none) times κ. 0 if the demand has no rate,
// otherwise from 1 to `most`; `most` also if no number is enough. `demand`
// contains its means.
uint32_t WantedReplicas(const sched::ModelSpec& model,
                        const ReplicaAbility& ability, const Demand& demand,
                        uint32_t most);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_WANTED_REPLICAS_H_
