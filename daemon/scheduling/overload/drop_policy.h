#ifndef DAEMON_SCHEDULING_OVERLOAD_DROP_POLICY_H_
#define DAEMON_SCHEDULING_OVERLOAD_DROP_POLICY_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/predict/peer_reads.h"
#include "daemon/scheduling/overload/drop_plan.h"

// Decides when replicas of a model give weights for KV, and how many bytes
// (design note 0047). Pure.

namespace fineserve::overload {

// KV of one replica; bytes.
struct KvLoad {
  uint64_t used = 0;       // by what runs
  uint64_t head = 0;       // that the first request of the queue asks for
  uint64_t queued = 0;     // that all of the queue asks for, the head included
  uint64_t undropped = 0;  // capacity with all weights there
  uint64_t dropped = 0;    // weights that are KV now
  uint64_t growth = 0;     // of what runs within Thresholds::rest; 0: in `used`

  double Full() const {
    const uint64_t capacity = undropped + dropped;
    return capacity == 0 ? 0
                         : static_cast<double>(used + head) /
                               static_cast<double>(capacity);
  }
};

// Drops when the running requests and the head of the queue take 95 % of the
// KV, as KunServe does (section 4.1). KunServe restores below half of the
// undropped capacity (section 4.4), since a pipeline takes long to dissolve.
// Here a copy over the link takes milliseconds, and until the copy is made each
// step pays for reads, so this restores as soon as the load is clearly below
// the first threshold. A drop or restoration never follows another within
// `rest`; otherwise a load around a threshold would move weights all the time.
struct Thresholds {
  double drop = .95;
  double restore = .85;            // heuristic; kunserve13 compares
  sched::Micros rest = 2'000'000;  // heuristic
};
enum class Act : uint8_t { kNothing, kDrop, kRestore };
// `since`: time since the last drop or restoration.
Act ActFor(const KvLoad& load, const Thresholds& thresholds,
           sched::Micros since);

// A replica as a lender and a borrower.
struct Replica {
  KvLoad kv;
  std::vector<Loan> loans;   // these save kv.dropped bytes
  uint64_t fingerprint = 0;  // of its weights; 0: unknown, or being written
  // The same value for all GPUs that have access to each other's memory; 0 if
  // this GPU has access to none.
  uint32_t domain = 0;
  // The requests here that have something to gain or lose.
  uint32_t waiting = 0, running = 0;
  double freed_per_us = 0;  // KV that ends free without a drop; bytes
  // Returns the time of a step, given what it reads: for a step without
  // prompts, and for one that is full of prompts.
  std::function<double(const sched::PeerReads&)> decode_us, full_us;
  double full_share = 0;  // of steps that are full of prompts
};

// The model, its SLOs, the link.
struct Terms {
  std::vector<Part> parts;
  sched::Micros slo_ttft = 0, slo_tpot = 0;
  double link_bytes_per_us = 0;
  double reread = 1;
  // Assumed length of a burst. If steps that read free KV more slowly, the KV
  // that they free less in this time is subtracted from the gain. Heuristic.
  sched::Micros burst = 30'000'000;
};

enum class Why : uint8_t {
  kDrops,
  kNotShort,
  kOneReplica,
  kUnequal,  // no other replica has the same weights, or they are unknown
  kNoPeerAccess,
  kNoLender,  // all of them have dropped what it has left
  kNotWorth,  // the TPOT lost is more than the TTFT won
  kLends,     // others read what it has left
  kDropped,   // it has nothing left that it may drop
  // Reasons of real engines.
  kUnnamed,    // it does not say which memory holds them, or writes them
  kFixedPool,  // its KV would not grow
};
// Returns, for example, "no other replica has the same weights". A string
// literal.
const char* Text(Why why);

struct DropDecision {
  Why why = Why::kNotShort;
  Lending lending;  // the whole of it
};

// A replica's reads before and after it drops more bytes, or none: its reads
// also change if others read from the same lenders.
struct Change {
  uint64_t dropped = 0;
  sched::PeerReads before, after;
};
// The TTFT that the drop saves the queue, and the TPOT that it adds to all
// requests that run after it; in SLOs, summed over requests.
double TtftWon(const Replica& replica, const Terms& terms,
               const Change& change);
double TpotLost(const Replica& replica, const Terms& terms,
                const Change& change);

// Chooses the parts that `asker` and all equal replicas in its reach drop.
// Takes the amount, up to the bytes that they lack, for which the gain in TTFT
// exceeds the loss in TPOT by the most; never an amount whose reads would make
// prefill the bottleneck. Earlier drops stay. If no amount is worth it, the
// drop is refused, and engines preempt as without it.
DropDecision DropFor(uint32_t asker, const std::vector<Replica>& replicas,
                     const Terms& terms);

}  // namespace fineserve::overload

#endif  // DAEMON_SCHEDULING_OVERLOAD_DROP_POLICY_H_
