#include "daemon/fineserved/pool_service/measured_pool.h"

#include <algorithm>
#include <atomic>

#include "daemon/fineserved/eviction/move_book.h"
#include "daemon/fineserved/pool_service/pool_service.h"

namespace fineserve::server {
namespace {

using abi::SlabState;

metrics::PoolEngine MeasureEngine(const PoolService& pool,
                                  slab::EngineId engine,
                                  const abi::EngineRecord& record) {
  metrics::PoolEngine measured;
  measured.name = pool.state().NameOf(engine);
  measured.alive = record.state == abi::EngineState::kAlive;
  const slab::SlabManager::Holding held = pool.slabs().HeldBy(engine);
  const auto of = [&](SlabState state) -> uint32_t& {
    return measured.slabs[static_cast<size_t>(state)];
  };
  if (measured.alive) {
    of(SlabState::kPartial) = held.in_view - held.returning;
    of(SlabState::kReturning) = held.returning;
    of(SlabState::kFull) = held.slabs - held.in_view;
  } else {
    of(SlabState::kQuarantined) = held.slabs;
  }
  if (const auto* scoreboard = pool.ScoreboardOf(engine)) {
    measured.swaps_ns = scoreboard->SwapsNs();
    measured.longest_swap_ns = scoreboard->LongestSwapNs();
  }
  const abi::ViewRecord& view = record.view;
  if (view.state != abi::ViewState::kActive) return measured;
  measured.wanted = view.wanted;
  measured.target = view.target;
  measured.floor = view.floor;
  measured.floor_unmet = view.floor - std::min(view.floor, view.leased);
  return measured;
}

}  // namespace

metrics::PoolFigures MeasurePool(const PoolService& pool, const MoveBook& moves,
                                 uint64_t now_ns) {
  const slab::PoolState& state = pool.state();
  const slab::PoolCounters& counters = state.counters();
  const PoolMeter& meter = pool.meter();
  metrics::PoolFigures figures;
  figures.slab_bytes = pool.slab_bytes();
  for (size_t i = 0; i < figures.slabs.size(); ++i) {
    figures.slabs[i] = pool.slabs().count(static_cast<SlabState>(i));
  }
  figures.wanted_slabs = state.wanted_slabs();
  for (const slab::EngineId engine : state.Engines()) {
    const abi::EngineRecord record = state.Record(engine);
    figures.engines.push_back(MeasureEngine(pool, engine, record));
    figures.engines.back().evicted_bytes = moves.EvictedBytes(engine);
    if (record.state != abi::EngineState::kQuarantined) continue;
    const double age_s =
        static_cast<double>(now_ns - std::min(now_ns, record.since_ns)) * 1e-9;
    figures.quarantine_age_s = std::max(figures.quarantine_age_s, age_s);
  }
  figures.leases_granted = counters.leases_granted;
  figures.leases_denied = counters.leases_denied;
  figures.hand_overs = meter.hand_overs();
  figures.slabs_asked_back = counters.slabs_asked_back;
  figures.slabs_returned = counters.slabs_returned;
  figures.slabs_zeroed = counters.slabs_zeroed;
  figures.slabs_added = counters.slabs_added;
  figures.slabs_withdrawn = counters.slabs_withdrawn;
  figures.slabs_quarantined = counters.slabs_quarantined;
  figures.engines_died = counters.engines_died;
  figures.memory_errors = state.memory_errors();
  figures.moves = moves.counts();
  figures.ask_back = meter.ask_back();
  figures.zeroing = meter.zeroing();
  figures.engine_starts.assign(meter.starts().begin(), meter.starts().end());
  return figures;
}

metrics::TableFigures MeasureTable(const slab::TableWriter& table) {
  const abi::TableCounters& counters = table.counters();
  // Relaxed: statistics, which publish no other data.
  const auto read = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  return {read(counters.messages_dropped), read(counters.connections_refused),
          read(counters.process_lists_useless),
          read(counters.loop_longest_turn_us), table.daemons()};
}

}  // namespace fineserve::server
