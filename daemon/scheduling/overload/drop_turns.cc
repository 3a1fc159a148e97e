#include "daemon/scheduling/overload/drop_turns.h"

#include <algorithm>
#include <utility>

namespace fineserve::overload {

using sched::Micros;

namespace {

// Number of parts of a share. Heuristic: as many amounts as a decision compares
// (DropFor).
constexpr uint32_t kParts = 8;

// Returns a part all of which a step reads; its share of the work is its share
// of the copy.
Part PartOf(uint64_t bytes, uint64_t copy_bytes) {
  const uint64_t all = std::max<uint64_t>({1, bytes, copy_bytes});
  return {bytes, bytes, static_cast<double>(bytes) / static_cast<double>(all)};
}

}  // namespace

sched::PeerReads DropRules::ReadsOf(uint64_t dropped_bytes,
                                    uint64_t copy_bytes) const {
  if (dropped_bytes == 0 || link_bytes_per_us == 0) return {};
  return overload::ReadsOf({{{{0, 1}}, dropped_bytes}, {}},
                           {PartOf(dropped_bytes, copy_bytes)},
                           link_bytes_per_us, reread)[0];
}

Terms DropRules::TermsOf(uint64_t copy_bytes, Micros slo_ttft,
                         Micros slo_tpot) const {
  const uint64_t bytes = std::max<uint64_t>(1, ShareOf(copy_bytes) / kParts);
  return {std::vector<Part>(kParts, PartOf(bytes, copy_bytes)), slo_ttft,
          slo_tpot, link_bytes_per_us, reread};
}

std::vector<Loan> DropRules::LoansOf(uint64_t dropped_bytes,
                                     const Terms& terms) {
  std::vector<Loan> loans;
  uint64_t bytes = 0;
  for (size_t i = 0; i < terms.parts.size() && bytes < dropped_bytes; ++i) {
    loans.push_back({i, UINT32_MAX});
    bytes += terms.parts[i].bytes;
  }
  return loans;
}

DropTurns::DropTurns(const DropRules& rules, std::vector<std::string> engines,
                     Micros now)
    : rules_(rules) {
  for (std::string& name : engines) {
    engines_.push_back({std::move(name), Text(Why::kNotShort)});
    engines_.back().changed = now;
  }
}

Act DropTurns::Due(size_t index, const Seen& seen, double chance, Micros now) {
  Engine& engine = engines_[index];
  if (seen.moves) return Act::kNothing;
  const bool tried = std::exchange(engine.tries, false);
  if (std::exchange(engine.dropped, seen.load.dropped) != seen.load.dropped) {
    engine.changed = now;
    engine.pause = 0;
  } else if (tried) {
    engine.pause = std::clamp(2 * engine.pause, kFirstPause, kLongestPause);
    engine.pause_ends =
        now +
        static_cast<Micros>((1 + chance) * static_cast<double>(engine.pause));
  }
  if (!rules_.on) return Act::kNothing;
  const bool pauses = engine.pause != 0 && now < engine.pause_ends;
  if (pauses && !seen.trouble.empty()) engine.why = seen.trouble;
  const Act act = ActFor(seen.load, Thresholds(), now - engine.changed);
  if (act != Act::kDrop) engine.asks = kNever;
  if (pauses) return Act::kNothing;
  if (now >= engine.pause_ends + kLongestPause) engine.pause = 0;
  if (act == Act::kDrop && seen.load.dropped != 0 &&
      seen.load.dropped >= seen.share) {
    engine.why = Text(Why::kDropped);
    return Act::kNothing;
  }
  if (act == Act::kDrop && engine.asks == kNever) engine.asks = now;
  if (act == Act::kNothing) engine.why = Text(Why::kNotShort);
  return act;
}

absl::optional<DropTurns::Choice> DropTurns::Choose(
    size_t index, const std::vector<Replica>& replicas, const Terms& terms,
    uint32_t before, Micros now) {
  Engine& engine = engines_[index];
  const DropDecision decision = DropFor(0, replicas, terms);
  engine.why = Text(decision.why);
  if (decision.why != Why::kDrops) return absl::nullopt;
  if (now - engine.asks < before * kYield) return absl::nullopt;
  const Loans& loans = decision.lending[0];
  return Choice{loans.all.back().lender, loans.bytes};
}

void DropTurns::Ordered(size_t index, Micros now) {
  Engine& engine = engines_[index];
  engine.tries = true;
  engine.asks = kNever;
  engine.changed = now;
}

bool DropTurns::waits() const {
  return std::any_of(engines_.begin(), engines_.end(), [](const Engine& e) {
    return e.asks != kNever || e.tries || e.dropped != 0;
  });
}

void DropTurns::GoOnFrom(const DropTurns& before) {
  for (Engine& engine : engines_) {
    for (const Engine& former : before.engines_) {
      if (former.name == engine.name) engine = former;
    }
  }
}

}  // namespace fineserve::overload
