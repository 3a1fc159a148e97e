#ifndef DAEMON_SCHEDULING_GLOBAL_MODEL_SNAPSHOT_H_
#define DAEMON_SCHEDULING_GLOBAL_MODEL_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "daemon/scheduling/global/model/profile.h"

namespace fineserve::plan {

// A model to be served, and how much of it.
struct ModelDemand {
  std::string name;
  std::string architecture;  // these three name its profile
  std::string quantisation;
  uint32_t tp = 1;
  double rate = 0;           // requests/s
  double prompt_tokens = 0;  // mean
  double output_tokens = 0;  // mean
  double slo_ttft_s = 0;
  double slo_tpot_s = 0;     // 0: none
  double floor_bytes = 0;    // of KV, always leased; 0: one mean request's
  uint32_t max_batch = 256;  // sequences of one step of its engine
  uint32_t replicas = 0;     // 0: as many as its rate and its SLO need
  bool may_share = false;    // its replicas may share a GPU
  std::vector<std::string> pins = {};  // the only GPUs it may use; empty: any
  // Memory that an engine keeps on each GPU, whether it runs or rests.
  double context_bytes = {};
  double process_bytes = {};  // host memory of an engine's processes
  bool may_rest = {};  // its places rest while they are off (resting.h); TP 1
  // The only groups of `tp` GPUs that its replicas may use, each group within a
  // node; if empty, any group.
  std::vector<std::vector<std::string>> groups = {};
  bool operator==(const ModelDemand&) const = default;
};

struct Gpu {
  std::string name;
  std::string node;         // a TP group is within one
  double memory_bytes = 0;  // of the device
  // Memory taken by anything other than the engines: a display, contexts that
  // no model counts.
  double taken_bytes = 0;
  // Size of an existing KV pool; weights and activations have the rest. If it
  // is 0, there is no pool, and KV has what they leave.
  double pool_bytes = 0;
  bool operator==(const Gpu&) const = default;

  double Capacity() const { return memory_bytes - taken_bytes; }
  // Returns the bytes left for the KV of engines whose weights and activations
  // take `fixed_bytes`.
  double KvBytes(double fixed_bytes) const {
    return pool_bytes > 0 ? pool_bytes : Capacity() - fixed_bytes;
  }
};

// A machine, identified by the node name of its GPUs.
struct Node {
  std::string name;
  double host_bytes = 0;  // that engines' processes and the store may use
  bool operator==(const Node&) const = default;
};
// Returns "node \"a\"", or "the machine" if its GPUs name no node.
std::string NodeTitle(const std::string& name);

// The place of one replica of a model.
struct Placed {
  std::string model;
  std::vector<std::string> gpus;  // as many as its TP
  bool operator==(const Placed&) const = default;
};

// A place that is off but still has a process.
struct PlaceOff {
  std::string model;
  std::string gpu;
  bool rests = false;  // as planned before: it stays while it fits
  bool operator==(const PlaceOff&) const = default;
};

// The whole input of a plan.
struct Snapshot {
  std::vector<ModelDemand> models;
  std::vector<Profile> profiles;
  std::vector<Gpu> gpus;
  // The present placement; a plan departs from it only for a gain, and ignores
  // entries that the snapshot does not know or no longer allows.
  std::vector<Placed> current;
  // The nodes whose host memory is known. On other nodes, host memory limits
  // nothing, and the plan does not say what rests. A node without GPUs is
  // ignored.
  std::vector<Node> nodes = {};
  // The only places that may rest, of models that may; if not set, all places
  // that are off.
  absl::optional<std::vector<PlaceOff>> off = {};
};

// InvalidArgument, in one line that names the culprit and the fix, unless the
// snapshot can be planned: names are unique, numbers are finite and positive,
// each model has a profile, and its pins exist.
absl::Status CheckSnapshot(const Snapshot& snapshot);

// Returns the profile that the model names; null if there is none.
const Profile* FindProfile(const std::vector<Profile>& profiles,
                           const ModelDemand& model);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MODEL_SNAPSHOT_H_
