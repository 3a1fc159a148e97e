#ifndef TOOLS_FSCTL_FABRICATED_H_
#define TOOLS_FSCTL_FABRICATED_H_

// A pool and a scoreboard made up for tests of the renderings.

#include <map>
#include <utility>

#include "daemon/abi/scoreboard_reader.h"
#include "tools/fsctl/daemon_choice.h"
#include "tools/fsctl/format.h"
#include "tools/fsctl/observation.h"

namespace fineserve::fsctl {

inline constexpr uint64_t kTestSecond = 1'000'000'000;
inline constexpr Moment kTestNow = {1000 * kTestSecond, 5000 * kTestSecond};

// Eight slabs of 64 MiB: 0-2 full (engine 1), 3 zeroing, 4-5 free, 6 of a
// quarantined engine 2, 7 of an engine that the table does not list.
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

// A pool at kTestNow; nobody in it has a view.
inline Observation Observed(Pool pool) {
  Observation seen;
  seen.pool = std::move(pool);
  seen.at = kTestNow;
  return seen;
}

// Gives `engine` (of the table) an active view of blocks of 8 planes × 96 KiB
// and the slabs of `used`, each in a lease of its own, with so many blocks in
// use. Its scoreboard is the engine's word, to be taken away or falsified.
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
                   0};
  }
  seen->view_scoreboards.insert_or_assign(engine, scoreboard);
}

// FabricatePool, where engine 1 has a view of slabs 0, 1 and 4, of 84, 85 and
// 85 blocks: full, partly used, empty.
inline Observation FabricateObservation() {
  Observation seen = Observed(FabricatePool());
  seen.pool.table.slabs[2].word = {};
  FabricateView(1, {{0, 84}, {1, 40}, {4, 0}}, &seen);
  return seen;
}

// Two decisions: one redirected with a stack, one denied.
inline abi::ScoreboardSnapshot FabricateScoreboard() {
  abi::ScoreboardSnapshot scoreboard;
  scoreboard.pid = 4712;
  scoreboard.epoch = 77;
  scoreboard.engine_id = 1;
  scoreboard.link_state = abi::LinkState::kConnected;
  scoreboard.program = "vllm";
  scoreboard.small_allocations = 1234;
  scoreboard.large_allocations = 40;
  scoreboard.redirected_allocations = 32;
  scoreboard.redirected_bytes = 2ull << 30;
  scoreboard.denied_allocations = 1;
  scoreboard.stacks_captured = 40;
  scoreboard.decisions_begun = 2;
  abi::DecisionSnapshot redirected;
  redirected.number = 0;
  redirected.time_ns = kTestNow.monotonic_ns - 12 * kTestSecond;
  redirected.address = 0x7f0000000000;
  redirected.bytes = 512 << 20;
  redirected.lease = 3;
  redirected.verdict = abi::Verdict::kRedirected;
  redirected.reason = abi::Reason::kDeclaredSize;
  redirected.frames = {0x1500, 0x9000};
  abi::DecisionSnapshot denied = redirected;
  denied.number = 1;
  denied.address = 0;
  denied.lease = 0;
  denied.result = 2;
  denied.verdict = abi::Verdict::kDenied;
  denied.reason = abi::Reason::kPoolExhausted;
  denied.frames.clear();
  scoreboard.decisions = {redirected, denied};
  return scoreboard;
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_FABRICATED_H_
