#ifndef TOOLS_FSCTL_DAEMONS_FABRICATED_POOL_H_
#define TOOLS_FSCTL_DAEMONS_FABRICATED_POOL_H_

// A pool for tests of what fsctl prints.

#include <cstdint>
#include <map>
#include <utility>

#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/daemons/observation.h"
#include "tools/fsctl/terminal/fabricated_moment.h"

namespace fineserve::fsctl {

// Eight slabs of 64 MiB: 0-2 are full (engine 1), 3 is being zeroed, 4-5 are
// free, 6 belongs to a quarantined engine 2, 7 to an engine that the table does
// not list.
inline Pool FabricatePool() {
  Pool pool;
  pool.socket = "/run/fineserve/GPU-x.sock";
  abi::TableSnapshot& t = pool.table;
  t.flags = abi::kTableEmulatedDevice;
  t.epoch = 0xfedcba9876543210;
  t.daemon_pid = 4711;
  t.granule_bytes = 2 << 20;
  t.granules_per_slab = 32;
  t.started_ns = kTestNow.realtime_ns - 300 * kTestSecond;
  t.gpu_uuid[0] = 0x4a;
  t.gpu_name = "Test GPU";
  t.counters.leases_granted = 3;
  t.counters.leases_denied = 1;
  t.counters.loop_longest_turn_us = 740;
  t.counters.slabs_zeroed = 12;
  t.counters.bytes_zeroed = 12 * t.slab_bytes();
  const uint64_t then = kTestNow.monotonic_ns - 60 * kTestSecond;
  t.engines = {
      {1, abi::EngineState::kAlive, 1000, 3, then, {4712, 4713}, "vllm-a"},
      {2, abi::EngineState::kQuarantined, 1000, 1, then, {}, "vllm-b"}};
  for (int i = 0; i < 8; ++i) t.slabs.push_back({{}, then});
  for (int i = 0; i < 3; ++i) t.slabs[i].word = {abi::SlabState::kFull, 1, 5};
  t.slabs[3].word = {abi::SlabState::kZeroing, 0, 0};
  t.slabs[6].word = {abi::SlabState::kQuarantined, 2, 7};
  t.slabs[7].word = {abi::SlabState::kFull, 9, 8};
  return pool;
}

// A pool at kTestNow in which no engine has a view.
inline Observation Observed(Pool pool) {
  Observation seen;
  seen.pool = std::move(pool);
  seen.at = kTestNow;
  return seen;
}

// Gives `engine` (of the table) an active view with blocks of 8 planes × 96
// KiB. `used` says which slabs it has, each under a separate lease, and how
// many blocks of each are in use. A test may remove or falsify the view's
// scoreboard.
inline void FabricateView(uint32_t engine,
                          const std::map<size_t, uint32_t>& used,
                          Observation* seen) {
  abi::TableSnapshot& t = seen->pool.table;
  abi::ViewScoreboardSnapshot scoreboard;
  scoreboard.pid = 4712;
  scoreboard.epoch = t.epoch;
  scoreboard.engine_id = engine;
  scoreboard.used.resize(t.slabs.size() + 1);
  for (const auto& [slab, blocks] : used) {
    t.slabs[slab].word = {abi::SlabState::kPartial, engine,
                          static_cast<uint32_t>(100 + slab)};
    scoreboard.used[slab + 1] = blocks;
    scoreboard.used_blocks += blocks;
  }
  for (abi::EngineSnapshot& record : t.engines) {
    if (record.id != engine) continue;
    record.slabs_held = used.size();
    record.view = {abi::ViewMode::kView,
                   abi::ViewState::kActive,
                   4712,
                   8,
                   96 << 10,
                   16,
                   t.granules_per_slab / 8,
                   static_cast<uint32_t>(t.slabs.size()),
                   2,
                   6,
                   4,
                   5,
                   static_cast<uint32_t>(used.size()),
                   0,
                   0,
                   0,
                   0,
                   {{{1, 16, 0}, {6, 16, 1024}}, 3, 2048, 1, 0}};
  }
  seen->view_scoreboards.insert_or_assign(engine, scoreboard);
}

// Returns FabricatePool, where engine 1 has a view of slabs 0, 1 and 4. They
// have 84, 85 and 85 blocks and are full, partly used and empty.
inline Observation FabricateObservation() {
  Observation seen = Observed(FabricatePool());
  seen.pool.table.slabs[2].word = {};
  FabricateView(1, {{0, 84}, {1, 40}, {4, 0}}, &seen);
  return seen;
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_FABRICATED_POOL_H_
