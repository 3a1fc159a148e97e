#ifndef DAEMON_SCHEDULING_GLOBAL_MODEL_FOOTPRINT_H_
#define DAEMON_SCHEDULING_GLOBAL_MODEL_FOOTPRINT_H_

#include <cstdint>
#include <string>

#include "daemon/scheduling/global/model/profile.h"
#include "daemon/scheduling/global/model/snapshot.h"

namespace fineserve::plan {

// Version of a formula: as the paper prints it, as in its authors' released
// code, or ours.
enum class Tier { kPaper, kReleased, kOurs };
const char* TierName(Tier tier);

// Memory that one replica of a model takes before memory is contested: the
// paper's F_M (§6.2). Bytes are of all its shards together.
struct Footprint {
  double weight_bytes = 0;
  double activation_bytes = 0;
  double kv_bytes = 0;     // at `batch` mean requests
  double floor_bytes = 0;  // of KV, without which it cannot serve
  uint32_t batch = 0;      // the smallest that meets its rate
  double ttft_s = 0;       // predicted there

  double Fixed() const { return weight_bytes + activation_bytes; }
  double Total() const { return Fixed() + kv_bytes; }
};

// The split of a model into replicas, each with the same part of the rate.
struct Sizing {
  uint32_t replicas = 1;
  Footprint each;
  // Says why the rate or the SLO cannot be met, with the fix; empty if they
  // can. If they cannot, there are as many replicas as allowed, or as the rate
  // alone needs.
  std::string shortfall;
};

// Returns the replicas and footprint of a model. kPaper: weights + activations
// + KV at the smallest profiled batch whose throughput meets a replica's rate;
// if one replica cannot meet the rate, or the TTFT SLO at that batch, the
// fewest replicas that can. kReleased: the same replicas, but 1.3 · weights +
// KV of 0.8 · (903 + 631) tokens at the interpolated batch (the released
// slab_aware and estimate_throughputs), no activations. `most_replicas`: how
// many replicas there is room for at all, ≥ 1. The model and profile have been
// checked (snapshot.h).
Sizing SizeModel(const ModelDemand& model, const Profile& profile, Tier tier,
                 uint32_t most_replicas);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MODEL_FOOTPRINT_H_
