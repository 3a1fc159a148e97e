#include "daemon/scheduling/overload/drop_policy.h"

#include <algorithm>

namespace fineserve::overload {
namespace {

// Amounts that are weighed against each other. Heuristic.
constexpr uint64_t kAmounts = 8;

uint64_t Short(const KvLoad& kv) {
  const uint64_t asked = kv.used + kv.queued;
  const uint64_t capacity = kv.undropped + kv.dropped;
  return asked > capacity ? asked - capacity : 0;
}

bool Equal(const Replica& a, const Replica& b) {
  return a.fingerprint != 0 && a.fingerprint == b.fingerprint;
}

// The one with which `asker` lends, or why there is none.
Why FindPartner(uint32_t asker, const std::vector<Replica>& replicas,
                uint32_t* partner) {
  const Replica& self = replicas[asker];
  if (self.partner >= 0) {
    *partner = static_cast<uint32_t>(self.partner);
    return Equal(self, replicas[*partner]) ? Why::kDrops : Why::kUnequal;
  }
  if (replicas.size() < 2) return Why::kOneReplica;
  Why why = Why::kUnequal;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < replicas.size(); ++i) {
    const Replica& other = replicas[i];
    if (i == asker || !Equal(self, other)) continue;
    const bool reaches = self.domain != 0 && self.domain == other.domain;
    const Why now = !reaches             ? Why::kNoPeerAccess
                    : other.partner >= 0 ? Why::kNoPartner
                                         : Why::kDrops;
    if (now != Why::kDrops) {
      if (why != Why::kDrops) why = std::max(why, now);
      continue;
    }
    why = Why::kDrops;
    // The one that is short of the least, so that most copies are left.
    if (Short(other.kv) >= least) continue;
    least = Short(other.kv);
    *partner = i;
  }
  return why;
}

double Gain(const Replica& replica, const Terms& terms,
            const Lending::Side& side) {
  const uint64_t more = side.bytes - replica.kv.dropped;
  const auto reads = [&](const Lending::Side& of) {
    return ReadsOf(of, terms.parts, terms.link_bytes_per_us, terms.reread);
  };
  // Earlier drops are read in any case.
  const double before =
      TpotLost(replica, terms, 0, reads({replica.dropped, replica.kv.dropped}));
  return TtftWon(replica, terms, more) -
         (TpotLost(replica, terms, more, reads(side)) - before);
}

// Bytes of a request that waits, on average.
double RequestBytes(const Replica& r) {
  return r.waiting == 0 ? 0
                        : static_cast<double>(r.kv.queued) /
                              static_cast<double>(r.waiting);
}

double Starts(const Replica& r, uint64_t dropped) {
  const double bytes = RequestBytes(r);
  if (bytes == 0) return 0;
  return std::min<double>(r.waiting, static_cast<double>(dropped) / bytes);
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
    case Why::kNoPartner:
      return "all equal replicas in reach lend to others";
    case Why::kNotWorth:
      return "reads from the peer would cost more than the queue's wait";
    case Why::kUnnamed:
      return "the engine does not say which memory holds weights alone "
             "(fs_weights_freeze), or writes them";
    case Why::kLends:
      return "another replica reads its weights";
    case Why::kDropped:
      return "all of its weights are dropped already";
    case Why::kFixedPool:
      return "the pool has a fixed size, and would not grow by them";
  }
  return "?";
}

double TtftWon(const Replica& r, const Terms& terms, uint64_t dropped) {
  if (terms.slo_ttft == 0) return 0;
  // Without a drop the i-th of the queue starts when i requests' KV is free.
  const double turn_us = r.freed_per_us > 0
                             ? RequestBytes(r) / r.freed_per_us
                             : static_cast<double>(terms.slo_ttft);
  const double m = Starts(r, dropped);
  const double turns = m * (m + 1) / 2 + m * (r.waiting - m);
  return turns * turn_us / static_cast<double>(terms.slo_ttft);
}

double TpotLost(const Replica& r, const Terms& terms, uint64_t dropped,
                const sched::PeerReads& reads) {
  if (terms.slo_tpot == 0) return 0;
  const double added =
      r.full_share * (r.full_us(reads) - r.full_us({})) +
      (1 - r.full_share) * (r.decode_us(reads) - r.decode_us({}));
  return (r.running + Starts(r, dropped)) * added /
         static_cast<double>(terms.slo_tpot);
}

DropDecision DropFor(uint32_t asker, const std::vector<Replica>& replicas,
                     const Terms& terms) {
  DropDecision decision;
  const Replica& a = replicas[asker];
  if (Short(a.kv) == 0) return decision;
  decision.why = FindPartner(asker, replicas, &decision.partner);
  if (decision.why != Why::kDrops) return decision;
  const Replica& b = replicas[decision.partner];
  decision.why = Why::kNotWorth;
  double most = 0;
  for (uint64_t i = 1; i <= kAmounts; ++i) {
    const Lending lending =
        Lend(terms.parts, a.kv.dropped + Short(a.kv) * i / kAmounts,
             b.kv.dropped + Short(b.kv) * i / kAmounts,
             {{a.dropped, a.kv.dropped}, {b.dropped, b.kv.dropped}});
    const double gain = Gain(a, terms, lending.a) + Gain(b, terms, lending.b);
    if (lending.a.bytes <= a.kv.dropped || gain <= most) continue;
    most = gain;
    decision.why = Why::kDrops;
    decision.lending = lending;
  }
  return decision;
}

}  // namespace fineserve::overload
