#include "tools/fsctl/daemons/churn.h"

namespace fineserve::fsctl {
namespace {

// Returns the rate per second; nothing if the counter decreased, as an engine's
// counter may.
std::optional<double> Rate(uint64_t before, uint64_t now, double seconds) {
  if (now < before) return std::nullopt;
  return static_cast<double>(now - before) / seconds;
}

PoolChurn RatesOf(const abi::CounterSnapshot& before,
                  const abi::CounterSnapshot& now, double seconds) {
  const auto rate = [&](uint64_t abi::CounterSnapshot::*counter) {
    return Rate(before.*counter, now.*counter, seconds).value_or(0);
  };
  return {rate(&abi::CounterSnapshot::leases_granted),
          rate(&abi::CounterSnapshot::leases_denied),
          rate(&abi::CounterSnapshot::slabs_asked_back),
          rate(&abi::CounterSnapshot::slabs_returned),
          rate(&abi::CounterSnapshot::bytes_zeroed)};
}

// Null if it is not known.
const abi::ViewScoreboardSnapshot* ScoreboardOf(const Observation& seen,
                                                uint32_t engine) {
  const auto scoreboard = seen.view_scoreboards.find(engine);
  if (scoreboard == seen.view_scoreboards.end() || !scoreboard->second.ok())
    return nullptr;
  return &*scoreboard->second;
}

// Returns the number of slabs that the engine holds in `now` by a lease that it
// did not have in `before`.
uint64_t Gained(const abi::TableSnapshot& before, const abi::TableSnapshot& now,
                uint32_t engine) {
  uint64_t gained = 0;
  for (size_t i = 0; i < now.slabs.size(); ++i) {
    const abi::SlabWord was = before.slabs[i].word;
    const abi::SlabWord is = now.slabs[i].word;
    const bool same = was.engine == is.engine && was.lease == is.lease;
    if (is.engine == engine && !same) ++gained;
  }
  return gained;
}

EngineChurn RatesOf(const Observation& before, const Observation& now,
                    uint32_t engine, double seconds) {
  EngineChurn churn;
  const abi::TableSnapshot& was = before.pool.table;
  const abi::TableSnapshot& is = now.pool.table;
  churn.leased = Rate(0, Gained(was, is, engine), seconds);
  churn.returned = Rate(0, Gained(is, was, engine), seconds);
  const abi::ViewScoreboardSnapshot* scoreboard_before =
      ScoreboardOf(before, engine);
  const abi::ViewScoreboardSnapshot* scoreboard_now = ScoreboardOf(now, engine);
  if (scoreboard_before != nullptr && scoreboard_now != nullptr) {
    churn.allocated_blocks = Rate(scoreboard_before->allocated_blocks,
                                  scoreboard_now->allocated_blocks, seconds);
  }
  return churn;
}

bool OfOneDaemon(const Observation& a, const Observation& b) {
  return a.pool.table.epoch == b.pool.table.epoch &&
         a.pool.table.slabs.size() == b.pool.table.slabs.size();
}

}  // namespace

Churn ChurnBetween(const Observation& before, const Observation& now) {
  Churn churn;
  const bool comparable =
      OfOneDaemon(before, now) && before.at.monotonic_ns < now.at.monotonic_ns;
  const double seconds =
      static_cast<double>(now.at.monotonic_ns - before.at.monotonic_ns) / 1e9;
  if (comparable) {
    churn.pool =
        RatesOf(before.pool.table.counters, now.pool.table.counters, seconds);
  }
  for (const abi::EngineSnapshot& engine : now.pool.table.engines) {
    churn.engines[engine.id] =
        comparable ? RatesOf(before, now, engine.id, seconds) : EngineChurn();
  }
  return churn;
}

Churn TotalChurn(const Observation& now) {
  Churn churn;
  churn.per_second = false;
  churn.pool = RatesOf({}, now.pool.table.counters, 1);
  for (const abi::EngineSnapshot& engine : now.pool.table.engines) {
    EngineChurn& total = churn.engines[engine.id];
    const abi::ViewScoreboardSnapshot* scoreboard =
        ScoreboardOf(now, engine.id);
    if (scoreboard == nullptr) continue;
    total.returned = Rate(0, scoreboard->returned_slabs, 1);
    // The engine still has every slab that was leased to it, or has returned
    // it.
    total.leased = *total.returned + static_cast<double>(engine.view.leased);
    total.allocated_blocks = Rate(0, scoreboard->allocated_blocks, 1);
  }
  return churn;
}

}  // namespace fineserve::fsctl
