#include "daemon/scheduling/overload/drop_policy.h"

#include <algorithm>
#include <utility>

namespace fineserve::overload {
namespace {

// Number of amounts that are compared with each other. Heuristic.
constexpr uint64_t kAmounts = 8;
// Largest fraction of the time in steps that are full of prompts: beyond it,
// requests do not wait for KV. Heuristic: kunserve13 compares values.
constexpr double kMostPrefill = .9;

uint64_t Beyond(const KvLoad& kv, uint64_t asked) {
  const uint64_t capacity = kv.undropped + kv.dropped;
  return asked - std::min(asked, capacity);
}
uint64_t Short(const KvLoad& kv) {
  return Beyond(kv, kv.used + kv.growth + kv.queued);
}

// Returns kDrops if one replica may read the other's copy, else the reason why
// not.
Why Between(const Replica& a, const Replica& b) {
  if (a.fingerprint == 0 || a.fingerprint != b.fingerprint) {
    return Why::kUnequal;
  }
  return a.domain != 0 && a.domain == b.domain ? Why::kDrops
                                               : Why::kNoPeerAccess;
}

// Returns why the replica drops nothing, although it is short and another
// replica is equal.
Why NothingLeft(uint32_t asker, const Lending& lending, size_t parts) {
  if (lending[asker].all.size() == parts) return Why::kDropped;
  for (const Loans& loans : lending) {
    for (const Loan& loan : loans.all) {
      if (loan.lender == asker) return Why::kLends;
    }
  }
  return Why::kNoLender;
}

// The requests that wait, and those that will be preempted before the next
// decision for lack of KV to grow into.
struct Queue {
  double requests = 0;
  double bytes = 0;  // of each, on average
};
Queue QueueOf(const Replica& r) {
  const auto grown = static_cast<double>(r.kv.used + r.kv.growth);
  const auto beyond =
      static_cast<double>(Beyond(r.kv, r.kv.used + r.kv.growth));
  const double preempted = grown > 0 ? r.running * beyond / grown : 0;
  Queue q;
  q.requests = r.waiting + preempted;
  if (q.requests == 0) return q;
  q.bytes = (static_cast<double>(r.kv.queued) + beyond) / q.requests;
  return q;
}

double Starts(const Queue& queue, double dropped) {
  if (queue.bytes == 0) return 0;
  return std::clamp<double>(dropped / queue.bytes, 0, queue.requests);
}

double StepUs(const Replica& r, const sched::PeerReads& reads) {
  return r.full_share * r.full_us(reads) +
         (1 - r.full_share) * r.decode_us(reads);
}

// True if, because of the replica's reads, prompts would wait for steps instead
// of KV.
bool PrefillBinds(const Replica& r, const Change& change) {
  const double before = r.full_us(change.before);
  const double after = r.full_us(change.after);
  return after > before &&
         r.full_share * after > kMostPrefill * StepUs(r, change.before);
}

// Returns the rate at which requests are served after a change, divided by the
// rate before. More requests run at once after it, so fewer steps without
// prompts serve as many of them; but their prompts fill as many steps.
double SpeedOf(const Replica& r, const Change& change) {
  const auto capacity = static_cast<double>(r.kv.undropped + r.kv.dropped);
  if (capacity == 0) return 1;
  const double more = 1 + static_cast<double>(change.dropped) / capacity;
  const double after = r.full_share * r.full_us(change.after) +
                       (1 - r.full_share) * r.decode_us(change.after) / more;
  return after > 0 ? StepUs(r, change.before) / after : 1;
}

}  // namespace

Act ActFor(const KvLoad& load, const Thresholds& thresholds,
           sched::Micros since) {
  if (since < thresholds.rest) return Act::kNothing;
  if (load.Full() >= thresholds.drop) return Act::kDrop;
  const bool room = static_cast<double>(load.used) <
                    thresholds.restore * static_cast<double>(load.undropped);
  return load.dropped > 0 && load.queued == 0 && room ? Act::kRestore
                                                      : Act::kNothing;
}

const char* Text(Why why) {
  switch (why) {
    case Why::kDrops:
      return "weights are dropped";
    case Why::kNotShort:
      return "KV is not short";
    case Why::kOneReplica:
      return "there is no other replica";
    case Why::kUnequal:
      return "no other replica has the same weights";
    case Why::kNoPeerAccess:
      return "no GPU of an equal replica can be read from";
    case Why::kNoLender:
      return "all equal replicas in reach lend or have dropped theirs";
    case Why::kNotWorth:
      return "reads from the peer would cost more than the queue's wait";
    case Why::kUnnamed:
      return "the engine does not say which memory holds weights alone "
             "(fs_weights_freeze), or writes them";
    case Why::kLends:
      return "another replica reads its weights";
    case Why::kDropped:
      return "its share of the weights is dropped already";
    case Why::kFixedPool:
      return "the pool has a fixed size, and would not grow by them";
  }
  return "?";
}

double TtftWon(const Replica& r, const Terms& terms, const Change& change) {
  if (terms.slo_ttft == 0) return 0;
  const double freed_less = r.freed_per_us *
                            (1 - std::min(1.0, SpeedOf(r, change))) *
                            static_cast<double>(terms.burst);
  // Without a drop, the i-th request of the queue starts when the KV of i
  // requests is free.
  const Queue queue = QueueOf(r);
  const double turn_us = r.freed_per_us > 0
                             ? queue.bytes / r.freed_per_us
                             : static_cast<double>(terms.slo_ttft);
  const double m =
      Starts(queue, static_cast<double>(change.dropped) - freed_less);
  const double turns = m * (m + 1) / 2 + m * (queue.requests - m);
  return turns * turn_us / static_cast<double>(terms.slo_ttft);
}

double TpotLost(const Replica& r, const Terms& terms, const Change& change) {
  if (terms.slo_tpot == 0) return 0;
  const double added = StepUs(r, change.after) - StepUs(r, change.before);
  const double starts = Starts(QueueOf(r), static_cast<double>(change.dropped));
  return (r.running + starts) * added / static_cast<double>(terms.slo_tpot);
}

DropDecision DropFor(uint32_t asker, const std::vector<Replica>& replicas,
                     const Terms& terms) {
  DropDecision decision;
  if (Short(replicas[asker].kv) == 0) return decision;
  decision.why = replicas.size() < 2 ? Why::kOneReplica : Why::kUnequal;
  std::vector<bool> is_in(replicas.size());
  Lending now;
  for (uint32_t i = 0; i < replicas.size(); ++i) {
    now.push_back({replicas[i].loans, replicas[i].kv.dropped});
    const Why why = Between(replicas[asker], replicas[i]);
    is_in[i] = i == asker || why == Why::kDrops;
    if (i == asker || decision.why == Why::kDrops) continue;
    decision.why = is_in[i] ? Why::kDrops : std::max(decision.why, why);
  }
  if (decision.why != Why::kDrops) return decision;
  // Lends `eighths` of what each replica lacks, and `more` bytes to the asker.
  const auto lend = [&](uint64_t eighths, uint64_t more) {
    std::vector<absl::optional<uint64_t>> wanted(replicas.size());
    for (uint32_t i = 0; i < replicas.size(); ++i) {
      const KvLoad& kv = replicas[i].kv;
      if (is_in[i]) wanted[i] = kv.dropped + Short(kv) * eighths / kAmounts;
    }
    *wanted[asker] += more;
    return Lend(terms.parts, wanted, now);
  };
  if (lend(0, 1)[asker].bytes == now[asker].bytes) {
    decision.why = NothingLeft(asker, now, terms.parts.size());
    return decision;
  }
  decision.why = Why::kNotWorth;
  const auto reads = [&](const Lending& lending) {
    return ReadsOf(lending, terms.parts, terms.link_bytes_per_us, terms.reread);
  };
  const auto before = reads(now);
  double most = 0;
  for (uint64_t eighths = 1; eighths <= kAmounts; ++eighths) {
    Lending lending = lend(eighths, 0);
    if (lending[asker].bytes == now[asker].bytes) continue;
    const auto after = reads(lending);
    double gain = 0;
    bool prefill_binds = false;
    for (uint32_t i = 0; i < replicas.size(); ++i) {
      const Change change = {lending[i].bytes - now[i].bytes, before[i],
                             after[i]};
      prefill_binds = prefill_binds || PrefillBinds(replicas[i], change);
      gain += TtftWon(replicas[i], terms, change) -
              TpotLost(replicas[i], terms, change);
    }
    if (gain <= most || prefill_binds) continue;
    most = gain;
    decision.why = Why::kDrops;
    decision.lending = std::move(lending);
  }
  return decision;
}

}  // namespace fineserve::overload
