#ifndef DAEMON_FLEET_CONFIG_FLEET_H_
#define DAEMON_FLEET_CONFIG_FLEET_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/fleet/config/profile_file.h"

namespace fineserve::config {

// A model that clients request by name.
struct FleetModel {
  std::string name;
  std::vector<std::string> aliases = {};  // other names that clients send
  // Names under which its engines serve LoRA adapters for this model.
  std::vector<std::string> adapters = {};
  uint32_t slo_ttft_ms = 0;
  uint32_t slo_tpot_ms = 0;      // 0: none
  uint32_t chunk_tokens = 2048;  // prefill tokens of one step
  uint32_t max_batch = 256;      // sequences of one step
  uint32_t block_tokens = 16;
  // Bytes over all layers. 0: not given, which is acceptable for views.
  uint64_t kv_token_bytes = 0;
  bool counts_prompts = false;  // by an engine's /tokenize; else estimated
  absl::optional<StepProfile> profile = {};  // none: learnt while serving
  std::string profile_path = {};       // of the file that has it, if one does
  bool kv_bytes_from_profile = false;  // kv_token_bytes too
  // Only the planner reads these. It uses the rate (requests/s) and the means
  // until it has seen requests.
  absl::optional<MeasuredProfile> measured = {};  // if a file has the profile
  double expected_rate = 0;
  double expected_prompt_tokens = 0;
  double expected_output_tokens = 0;
  uint32_t replicas = 1;  // 0: as many as its rate and its SLO need
  // Another model, or an OutsideModel, that takes requests which this one
  // cannot serve; empty: none.
  std::string fallback = {};
  // Only the planner reads these: memory of each GPU that an engine keeps while
  // it runs or rests (0: not counted), and host memory of its processes (0: as
  // daemons measure it).
  uint64_t context_bytes = {};
  uint64_t process_bytes = {};
  bool operator==(const FleetModel&) const = default;

  bool IsAdapter(absl::string_view asked) const;
  // True if clients mean this model by `asked`: its name, an alias or an
  // adapter.
  bool HasName(absl::string_view asked) const;
};

// One server of a model; or, if an [[engine]] lists several GPUs, one of the
// places at which it may run, from which the planner chooses.
struct FleetEngine {
  std::string name;   // as fineserved knows it: $FINESERVE_ENGINE
  std::string model;  // a FleetModel's name
  std::string host;   // of its URL
  uint16_t port = 0;
  std::string gpu;      // UUID of its GPU, or how it begins; empty: any
  bool is_mig = false;  // CUDA writes that UUID MIG-…, fineserved GPU-…
  bool gpu_by_index = false;  // its program takes no UUID for its GPU
  std::vector<std::string> command = {};  // empty: not started by `fsctl up`
  // Environment variables that are added to the environment of `fsctl up`.
  std::map<std::string, std::string> environment = {};
  bool view = true;  // its KV is a view of the pool
  // Its share of its model's requests, in requests per second. If all of a
  // model's engines have 0, the least busy one gets the request.
  double target_rate = 0;
  uint64_t floor_bytes = 0;  // of a view: always leased to it
  uint64_t cap_bytes = 0;    // of a view: never more; 0: no limit
  bool is_place = false;     // the planner says whether it runs
  // `fsctl up` restarts an engine that has served after this many seconds
  // without an answer to /health; 0: never.
  uint32_t restart_after_s = 120;
  // `fsctl up` starts it when a request for its model waits, and stops it after
  // this many seconds without one; 0: never.
  bool on_request = false;
  uint32_t stop_after_s = 0;
  // An autoscaler starts and ends it, so its absence is not an error (design
  // note 0046).
  bool is_scaled = false;
  // Its memory may leave the GPU for the host (design note 0039). It leaves
  // automatically after this many seconds without a request; 0: never.
  bool may_evict = false;
  uint32_t evict_after_s = 0;
  // GPUs of replicas whose weights it may read (design note 0048). `fsctl up`
  // lists them to it after its own GPUs. Not in the file.
  std::vector<std::string> peer_gpus = {};
  // GPUs of its other ranks, all on one machine, written as `gpu`, which is its
  // first rank's.
  std::vector<std::string> rank_gpus = {};
  bool operator==(const FleetEngine&) const = default;

  // Returns `gpu` and `rank_gpus`, in the order of its ranks.
  std::vector<std::string> Gpus() const;
  // True if one of its ranks is on the GPU of this UUID.
  bool IsOn(absl::string_view uuid) const;
  // True if a GPU of this engine may be the same as one of the other engine.
  bool MayShareGpuWith(const FleetEngine& other) const;
  // Returns Gpus() in CUDA's notation, separated by commas.
  std::string CudaGpus() const;
  // `gpu` as CUDA writes it.
  std::string CudaGpu() const;
  // True if `environment` sets which GPUs its processes see.
  bool NamesItsGpus() const;
  // Returns the GPUs that `fsctl up` makes visible to it, in CUDA's notation;
  // empty if its environment decides what it sees.
  std::vector<std::string> ShownGpus() const;
};

// A model of an endpoint outside the fleet that speaks OpenAI's API.
struct OutsideModel {
  std::string name;  // as clients and fallbacks name it
  std::string host;  // of its URL
  uint16_t port = 0;
  bool tls = false;
  std::string path;      // "/v1": in front of "/chat/completions"
  std::string model;     // as the endpoint names it
  std::string key_path;  // of a file with the endpoint's API key; empty: none
  bool operator==(const OutsideModel&) const = default;
};

// Paths of client requests that the proxy does not know and passes to an
// engine.
struct OtherPaths {
  bool all = false;                 // but those by which engines are operated
  std::vector<std::string> listed;  // "/v1/tools/*": all behind /v1/tools
  bool operator==(const OtherPaths&) const = default;
};

// Address and options of fineserve-proxy.
struct ProxySettings {
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 8000;  // 0: any
  std::string admin_host = "127.0.0.1";
  uint16_t admin_port = 8001;
  bool fail_open = true;  // without a daemon: admit; false: answer 503
  // If true, the proxy chooses between GPUs whose engines have no target rates
  // by the least outstanding tokens instead of the least predicted TTFT.
  bool least_load = false;
  // Requests for these paths go to an engine without asking admission; all
  // other paths are refused.
  OtherPaths other_paths;
  std::string keys_path;    // of a file with one API key per line; empty: none
  std::string ledger_path;  // of the file that counts what named keys spend
  bool open = false;        // a reload may take the keys away
  // If true, every client may set its priority, SLOs and tenant; otherwise, if
  // there are keys, only clients with a marked key may.
  bool all_may_set_service = false;
  std::vector<std::string> origins;      // of pages that may ask; "*": all
  std::vector<std::string> admin_names;  // by which the admin port is asked
  uint32_t drain_s = 30;  // how long running requests may take after SIGTERM
  // Time that an engine may show no sign of life while a stream waits for it
  // (fineserve-fleet(5)).
  uint32_t engine_timeout_s = 120;
  bool operator==(const ProxySettings&) const = default;
};

// Settings for the leader's planning while engines serve (design note 0024).
// Times in s.
struct PlannerSettings {
  bool on = false;  // the file has a [planner]
  std::string policy = "fineserve-opt";
  double period_s = 5;      // between plans
  double window_s = 60;     // over which demand is measured
  double least_gain = 0.2;  // of a move, in parts of what is there
  double cool_down_s = 30;  // between moves
  double start_s = 600;     // an engine that does not serve by then is given up
  double drain_s = 300;     // what an engine still runs then is broken off
  // Memory of each machine that engines' processes and the stores may use; 0:
  // the amount that its daemons read.
  uint64_t host_bytes = {};
  bool operator==(const PlannerSettings&) const = default;
};

// Settings for equal replicas that give up weights to make room for KV (design
// note 0047).
struct OverloadSettings {
  bool may_drop = true;  // if there is a link
  // Bandwidth in one direction between two GPUs that have access to each
  // other's memory, in 10^9 bytes/s; 0: no such access, and nothing is dropped.
  double link_gb_s = 0;
  // The most often that one step reads the same byte over the link. A full step
  // of 2,048 tokens reads it sixteen times, once for each row block, unless the
  // GPU caches a peer's lines. No GPU has been seen to do that yet.
  uint32_t rereads = 16;
  bool operator==(const OverloadSettings&) const = default;

  bool IsOn() const { return may_drop && link_gb_s > 0; }
};

struct HostPort {
  std::string host;
  uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

// One machine of a fleet that has several.
struct Machine {
  std::string name;
  std::string host;               // where the others reach it
  std::vector<std::string> gpus;  // UUIDs, or how they begin
  uint64_t host_bytes = {};       // PlannerSettings' of this one; 0: as all
  bool operator==(const Machine&) const = default;
};

// The machines of a fleet, and where their etcd is (design note 0031).
struct ClusterSettings {
  static constexpr uint32_t kMostTtlS = 300;

  std::string name = "fleet";  // of several fleets in one etcd
  std::vector<HostPort> etcd;
  // Port on which the daemon of a machine's first GPU listens for the other
  // machines; the next GPU's daemon has the next port.
  uint16_t port = 7480;
  uint32_t ttl_s = 5;  // of a machine's lease
  std::vector<Machine> machines;
  bool operator==(const ClusterSettings&) const = default;

  bool IsOn() const { return machines.size() > 1; }
  // Returns the machine that has the GPU; null if none has it. Abbreviated
  // UUIDs match if one is a prefix of the other.
  const Machine* MachineOf(absl::string_view gpu) const;
  const Machine* Named(absl::string_view machine) const;
  // Returns the port of the GPU's daemon; 0 if no machine has the GPU.
  uint16_t PortOf(absl::string_view gpu) const;
};

// A fleet's models and engines, and how requests come to them: what the
// proxy, fineserved's scheduler and `fsctl up` read. An example with every key:
//
//   [proxy]
//   listen = "127.0.0.1:8000"
//   admin = "127.0.0.1:8001"
//   without_daemon = "fail_open"     # or "fail_closed"
//   replicas = "predicted_ttft"      # or "least_load"
//   other_paths = "refuse"           # or "forward", or ["/v1/tools/*"]
//   keys = "/etc/fineserve/keys"
//   ledger = "/var/lib/fineserve/ledger"
//   open = false                     # true: no keys, and that is meant
//   drain = 30                       # seconds, as the next
//   engine_timeout = 120             # of an engine without a sign of life
//
//   [scheduler]
//   policy = "fineserve"             # or "moore-hodgson", "fcfs"
//   eviction = "slack"               # or "lru", "prism"
//
//   [overload]                       # equal replicas give weights for KV
//   drop = "auto"                    # or "never"
//   link_gb_s = 400                  # without it nothing is dropped
//   rereads = 16
//
//   [planner]                        # plans while serving
//   policy = "fineserve-opt"
//   period = 5                       # seconds, as all times here
//   window = 60
//   least_gain = 0.2
//   cool_down = 30
//   start = 600
//   drain = 300
//   host_memory = "1TiB"             # that processes and stores may use
//
//   [cluster]                        # several machines
//   etcd = ["127.0.0.1:2379"]
//   name = "fleet"
//   port = 7480
//   ttl = 5
//   machines = [
//     { name = "a", host = "10.0.0.1", gpus = ["GPU-8f0c3f1e"] },
//     { name = "b", host = "10.0.0.2", gpus = ["GPU-1d2e7a90"],
//       host_memory = "512GiB" },
//   ]
//
//   [[model]]
//   name = "llama-8b-fp16"
//   slo_ttft_ms = 800
//   slo_tpot_ms = 60
//   chunk_tokens = 2048
//   max_batch = 64
//   block_tokens = 16
//   kv_token_bytes = 131072
//   prompt_tokens = "estimate"       # or "exact": engines are asked
//   profile = { base_us = 8000, per_token_us = 110, per_sequence_us = 60 }
//                                    # or a file of fsctl profile's
//   expected = { rate = 2.5, prompt_tokens = 242, output_tokens = 327 }
//   replicas = 1                     # 0: as many as rate and SLO need
//   context = "524MiB"               # of each GPU, while it runs or rests
//   process = "6GiB"                 # host memory of an engine's processes
//
//   [[engine]]
//   name = "llama-a"
//   model = "llama-8b-fp16"
//   url = "http://127.0.0.1:9001"
//   gpu = "GPU-8f0c3f1e"             # if there is more than one; a list: one
//                                    # for each rank
//   gpu_by = "uuid"                  # or "index": for vLLM before 0.24
//   command = ["vllm", "serve", "meta-llama/Llama-3.1-8B", "--port", "9001"]
//   env = { HF_HUB_OFFLINE = "1" }   # on top of the environment of `fsctl up`
//   view = true                      # false: for engines without a plugin
//   start = "always"                 # or "on_request", "scaled"
//   stop_after = 0                   # s without a request; 0: never
//   target_rate = 3.5                # requests/s, among the model's replicas
//   floor = "2GiB"                   # of a view: always leased to it
//   cap = "12GiB"                    # of a view: never more
//
//   [[outside]]                      # may take requests in a model's place
//   name = "gpt"
//   url = "https://api.example.com/v1"
//   model = "gpt-5-mini"             # as the endpoint names it
//   key = "/etc/fineserve/outside-key"
//
//   [[engine]]                       # name, url and command are filled in
//   engine = "vllm"                  # or "sglang"
//   model = "llama-8b-fp16"
//   checkpoint = "meta-llama/Llama-3.1-8B"
//   program = "/opt/vllm/bin/vllm"
//   arguments = ["--max-model-len", "8192"]
//
//   [[engine]]                       # means chat-0 and chat-1
//   name = "chat"
//   model = "llama-8b-fp16"
//   url = "http://127.0.0.1:9011"    # of the first; the second has 9012
//   gpus = ["GPU-8f0c3f1e", "GPU-1d2e7a90"]
//   command = ["vllm", "serve", "meta-llama/Llama-3.1-8B", "--port", "{port}"]
struct Fleet {
  ProxySettings proxy;
  PlannerSettings planner;
  ClusterSettings cluster;
  std::string policy = "fineserve";
  // Policy that chooses which idle engine leaves the GPU when others need
  // memory (evict::EvictionPolicyNamed).
  std::string eviction_policy = "slack";
  std::vector<FleetModel> models;
  std::vector<FleetEngine> engines;
  std::vector<OutsideModel> outside = {};
  OverloadSettings overload = {};

  bool operator==(const Fleet&) const = default;

  // Returns the index into `models`; models.size() if there is no model of this
  // name.
  size_t ModelIndex(const std::string& name) const;

  // Returns the engine of this name; null if there is none.
  const FleetEngine* Engine(absl::string_view name) const;
  // Returns the OutsideModel of this name; null if there is none.
  const OutsideModel* Outside(absl::string_view name) const;

  // Returns the memory of the GPU's machine that engines' processes and the
  // stores may use; 0 if the file does not say.
  uint64_t HostBytesOf(absl::string_view gpu) const;

  // Returns this fleet with only those engines whose gpu is written exactly
  // like this.
  Fleet OfGpu(const std::string& gpu) const;
};

// Reads a TOML file. Errors are InvalidArgument with one line
// "FILE:LINE: what is wrong; the fix", as ReadConfig's; NotFound if the file
// cannot be read.
absl::StatusOr<Fleet> ReadFleet(const std::string& path);

// Returns the absolute path that identifies a fleet. Links in it are not
// resolved, since their targets may be replaced while the fleet stays the same,
// as when Kubernetes updates a ConfigMap.
std::string FleetPath(const std::string& path);

// True if both paths name the same fleet: they are equal, or lead to the same
// file now.
bool IsSameFleet(const std::string& a, const std::string& b);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_FLEET_H_
