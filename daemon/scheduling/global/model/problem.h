#ifndef DAEMON_SCHEDULING_GLOBAL_MODEL_PROBLEM_H_
#define DAEMON_SCHEDULING_GLOBAL_MODEL_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/scheduling/global/model/footprint.h"
#include "daemon/scheduling/global/model/snapshot.h"
#include "daemon/scheduling/global/model/token_curve.h"

namespace fineserve::plan {

// The GPUs that one replica spans, in ascending order.
using Group = absl::InlinedVector<uint32_t, 4>;

// One replica, as a policy sees it. Bytes are those on each of its GPUs.
struct Replica {
  uint32_t model = 0;   // index into Problem::models
  uint32_t number = 0;  // among its model's replicas
  uint32_t tp = 1;
  double rate = 0;           // requests/s
  double fixed_bytes = 0;    // weights, activations and the context
  double floor_bytes = 0;    // KV without which it cannot serve
  double base_kv_bytes = 0;  // the KV of F_M
  double weight_bytes = 0;   // without the released tier's allowance
  TokenCurve curve;
  double structural_mu = 0;  // tokens a byte of its KV holds (efficiency.h)
  double pressure_v1 = 0;    // Prism's rate / SLO_TTFT, of one of its shards
  double pressure_v3 = 0;    // token rate · token size / SLO_TPOT, of a shard
  std::vector<bool> allowed = {};  // by GPU; empty: all
  // The only groups that the replica may use; if empty, any GPUs of a node that
  // are allowed.
  std::vector<Group> groups = {};
  double context_bytes = {};
  // Host memory that it takes of its node, in whole bytes, so that sums are
  // exact.
  double process_bytes = {};

  double Footprint() const { return fixed_bytes + base_kv_bytes; }
  double Least() const { return fixed_bytes + floor_bytes; }
};

// A GPU on which a model's place is off but has a process (PlaceOff).
struct OffOn {
  uint32_t gpu = 0;
  bool rests = false;
};

// The snapshot in the form that policies work on. Models, replicas and GPUs are
// in the order of their names, so that the order of the input means nothing.
// Immutable once made.
struct Problem {
  std::vector<ModelDemand> models;
  std::vector<Sizing> sizings;        // by model
  std::vector<Gpu> gpus;              // by node, then by name
  std::vector<uint32_t> node_of;      // by GPU
  std::vector<uint32_t> node_begins;  // by node, and one more: gpus.size()
  std::vector<uint32_t>
      pin_class;                  // by GPU: equal where the same models pin it
  std::vector<Replica> replicas;  // by model, then by number
  std::vector<uint32_t> first_replica;  // by model, and one more
  double co_tenant_slowdown = 0;        // see Slowdown
  double burst = 1;            // for headroom: how many times the rates
  std::vector<Group> current;  // by replica: its present place; empty: none
  std::vector<double> host_bytes = {};  // by node; 0: not known, no limit
  // For each model, the only places of it that may rest; if not set, all that
  // are off.
  absl::optional<std::vector<std::vector<OffOn>>> off = {};

  // Returns the factor by which everything takes longer beside `neighbours`
  // working neighbours, each counted by the part of the time in which it works.
  // Interference is an input: each neighbour adds the same.
  double Slowdown(double neighbours) const {
    return 1 + co_tenant_slowdown * neighbours;
  }
  // True if a policy may run fewer replicas than F_M asks for, because the
  // operator did not set their number.
  bool ChoosesNumber(uint32_t model) const {
    return models[model].replicas == 0;
  }
  bool MayUse(const Replica& r, uint32_t gpu) const {
    return r.allowed.empty() || r.allowed[gpu];
  }
  bool MayUse(const Replica& r, const Group& group) const;
  // Returns "llama-8b", or "llama-8b#2" if there are several.
  std::string NameOf(uint32_t replica) const;
};

struct ProblemOptions {
  Tier footprint = Tier::kPaper;
  double co_tenant_slowdown = 0;
  double burst = 2;
};

// InvalidArgument in the same cases as CheckSnapshot.
absl::StatusOr<Problem> MakeProblem(const Snapshot& snapshot,
                                    const ProblemOptions& options);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MODEL_PROBLEM_H_
