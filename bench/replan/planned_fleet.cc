#include "bench/replan/planned_fleet.h"

namespace fineserve::bench {

workload::KvNeed PlannedFleet::Need() {
  workload::KvNeed need;
  need.pool_bytes = double{kPoolMib} * kMib;
  need.block_bytes = double{kPageKib} * 1024;
  need.block_tokens = kBlockTokens;
  need.lengths = kLengths;
  need.token_seconds = 1e-6 * kBaseUs;
  return need;
}

config::MeasuredProfile PlannedFleet::Profile(const std::string& model) {
  config::MeasuredProfile profile;
  profile.model = model;
  profile.url = "http://127.0.0.1:1";
  profile.chunk_tokens = kChunkTokens;
  profile.weight_bytes = double{kWeightMib} * kMib;
  profile.kv_token_bytes = kTokenBytes;
  profile.step = {kBaseUs, kTokenUs, kSequenceUs};
  profile.decode_base_us = kBaseUs;
  for (const uint32_t batch : {1u, 8u, 32u, kMostSequences}) {
    const uint32_t tokens = batch * kLengths.input;
    const uint32_t steps = (tokens + kChunkTokens - 1) / kChunkTokens;
    profile.points.push_back({batch, kLengths.input,
                              1e-6 * (steps * kBaseUs + tokens * kTokenUs),
                              1e-6 * (kBaseUs + batch * kSequenceUs), 0, 0, 3});
  }
  return profile;
}

}  // namespace fineserve::bench
