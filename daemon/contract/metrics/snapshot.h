#ifndef DAEMON_CONTRACT_METRICS_SNAPSHOT_H_
#define DAEMON_CONTRACT_METRICS_SNAPSHOT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/contract/abi/slab_table.h"
#include "daemon/contract/verdict/verdict.h"

namespace fineserve::metrics {

// Upper bounds of the buckets in seconds: from a driver's call to a request
// that holds a slab for minutes. The last bucket has none.
inline constexpr double kDurationBounds[] = {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3,
                                             0.01, 0.03, 0.1,  0.3,  1,    3,
                                             10,   30,   100,  300};
inline constexpr size_t kDurationBuckets = std::size(kDurationBounds) + 1;

// Counts of durations by bucket at one moment.
struct DurationCounts {
  std::array<uint64_t, kDurationBuckets> buckets = {};  // each by itself
  double sum_s = 0;

  uint64_t count() const {
    uint64_t all = 0;
    for (uint64_t n : buckets) all += n;
    return all;
  }
};

// Counts durations. Any thread may add and read: a reader may see a sum that
// lags behind the buckets.
class Durations {
 public:
  void Add(uint64_t ns) {
    size_t bucket = 0;
    const double s = static_cast<double>(ns) * 1e-9;
    while (bucket < kDurationBuckets - 1 && s > kDurationBounds[bucket]) {
      ++bucket;
    }
    // Relaxed: these are statistics that publish no other data.
    buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  }

  DurationCounts Read() const {
    DurationCounts counts;
    for (size_t i = 0; i < kDurationBuckets; ++i) {
      counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    }
    counts.sum_s =
        static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
    return counts;
  }

 private:
  std::array<std::atomic<uint64_t>, kDurationBuckets> buckets_ = {};
  std::atomic<uint64_t> sum_ns_{0};
};

// The state of fineserved at one time, as its main thread copies it for a
// scrape: figures and names as they are. The exporter
// (daemon/fineserved/exporter) makes the text on another thread, and decides
// there which names become labels.

// Facts that do not change while a daemon runs.
struct Identity {
  std::string version;
  uint32_t abi = 0;
  std::string gpu;     // UUID
  std::string device;  // its name
  uint64_t epoch = 0;
  double started_s = 0;  // since 1970
};

using SlabsByState = std::array<uint32_t, abi::kSlabStateCount>;

// An engine in the pool; in slabs.
struct PoolEngine {
  std::string name;
  bool alive = true;
  SlabsByState slabs = {};
  uint32_t wanted = 0;
  uint32_t target = 0;
  uint32_t floor = 0;
  uint32_t floor_unmet = 0;  // of an active view
  // Time that a thread of the engine spent mapping and unmapping slabs: in all,
  // and the longest.
  uint64_t swaps_ns = 0;
  uint64_t longest_swap_ns = 0;
  uint64_t evicted_bytes = 0;  // on the host
};

// Engines whose memory has moved (design note 0039).
struct MoveCounts {
  uint64_t evicted = 0;
  uint64_t activated = 0;
  uint64_t failed = 0;
  // Parameters (design note 0048).
  uint64_t dropped = 0;
  uint64_t restored = 0;
};

// Host memory that holds evicted contents.
struct StoreFigures {
  uint64_t held_bytes = 0;   // of copies
  uint64_t spare_bytes = 0;  // of these, whose holders are on the GPU
  uint64_t unshared_bytes =
      0;                      // that engines which are out would take unshared
  uint64_t limit_bytes = 0;   // that it may hold
  uint64_t copied_bytes = 0;  // since the daemon's start
  uint64_t found_bytes = 0;   // that did not have to be copied
  uint64_t copies = 0;
  uint64_t others_bytes = 0;  // needed here, in other daemons' stores
  // Bytes that returned to the GPU, over this GPU's own link to the host and
  // over the links of other GPUs.
  uint64_t own_link_bytes = 0;
  uint64_t other_links_bytes = 0;
};

struct PoolFigures {
  uint64_t slab_bytes = 0;
  SlabsByState slabs = {};
  uint32_t wanted_slabs = 0;
  std::vector<PoolEngine> engines;
  uint64_t leases_granted = 0;
  uint64_t leases_denied = 0;
  uint64_t hand_overs = 0;
  uint64_t slabs_asked_back = 0;
  uint64_t slabs_returned = 0;
  uint64_t slabs_zeroed = 0;
  uint64_t slabs_added = 0;
  uint64_t slabs_withdrawn = 0;
  uint64_t slabs_quarantined = 0;
  uint64_t engines_died = 0;
  double quarantine_age_s = 0;
  uint64_t memory_errors = 0;
  MoveCounts moves;
  StoreFigures store;
  DurationCounts ask_back;
  DurationCounts zeroing;
  std::vector<std::pair<std::string, uint64_t>> engine_starts;
};

// The counts of TableCounters that no part of the pool keeps itself.
struct TableFigures {
  uint64_t messages_dropped = 0;
  uint64_t connections_refused = 0;
  uint64_t process_lists_useless = 0;
  uint64_t loop_longest_turn_us = 0;
  uint32_t daemons = 1;  // that have served this pool
};

// Calls of the pool's backing (daemon/fineserved/backing/backing.h).
enum class DriverCall : uint8_t {
  kCreate,
  kDestroy,
  kExport,
  kZero,
  kPoll,
  kList,
  kMemory,
};
inline constexpr const char* kDriverCalls[] = {
    "create", "destroy", "export", "zero", "poll", "list", "memory"};
inline constexpr size_t kDriverCallCount = std::size(kDriverCalls);

struct DriverCallFigures {
  DurationCounts times;
  uint64_t errors = 0;
};
using DriverFigures = std::array<DriverCallFigures, kDriverCallCount>;

struct ModelFigures {
  std::string name;
  double slo_ttft_s = 0;
  uint32_t queued = 0;    // degraded ones too
  uint32_t degraded = 0;  // of these
  uint64_t queued_tokens = 0;
  uint64_t admitted = 0;
  uint64_t admitted_degraded = 0;
  uint64_t cancelled = 0;
  std::array<uint64_t, verdict::kRefusals> rejected = {};  // by verdict::Index
  uint64_t on_time = 0;
  uint64_t late = 0;
  // Replicas that the demand wants: of those in the fleet file, and beyond
  // them. Absent if that is unknown, or the model has no engine here.
  absl::optional<uint32_t> wanted_replicas = {};
  uint32_t unlisted_replicas = 0;
};

// An engine of the fleet.
struct FleetEngine {
  std::string name;
  std::string model;
  bool serves = false;
  bool drains = false;
  bool on_request = false;
  bool scaled = false;  // by an autoscaler
  uint32_t troubles = 0;
  uint32_t running = 0;
  uint32_t most_running = 0;
  uint64_t kv_tokens = 0;
  uint64_t held_tokens = 0;
  uint64_t backlog_tokens = 0;
  double kappa = 1;
  // Weights that the engine has dropped, the time since it dropped them, and
  // the bytes of them that it has read from a peer.
  uint64_t dropped_bytes = 0;
  double dropped_s = 0;
  uint64_t peer_read_bytes = 0;
};

// The names of wire::ConnectionFault, in its order.
inline constexpr const char* kConnectionFaultReasons[] = {
    "untrusted", "no_handshake", "damaged"};

struct AdmissionFigures {
  uint32_t proxies = 0;
  // Refused connections from other machines, by reason.
  std::array<uint64_t, std::size(kConnectionFaultReasons)> refused_connections =
      {};
  std::vector<ModelFigures> models;
  std::vector<FleetEngine> engines;
};

struct PlanFigures {
  uint64_t number = 0;
  bool leads = false;
  bool frozen = false;
  bool moving = false;
  uint64_t moves = 0;
  uint64_t refused = 0;  // plans that were too old
  uint32_t troubles = 0;
};

struct Snapshot {
  std::shared_ptr<const Identity> identity;
  PoolFigures pool;
  TableFigures table;
  DriverFigures driver;
  absl::optional<AdmissionFigures> admission;  // with a fleet
  absl::optional<PlanFigures> plan;            // with a planner
};

}  // namespace fineserve::metrics

#endif  // DAEMON_CONTRACT_METRICS_SNAPSHOT_H_
