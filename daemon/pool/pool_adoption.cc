// The part of PoolState that takes over the pool of a daemon that has ended.

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/view_messages.h"
#include "daemon/pool/pool_state.h"

namespace fineserve::slab {
namespace {

using abi::EngineState;
using abi::SlabState;
using abi::ViewState;

// No process can join the engine of this name, because Find returns only living
// engines.
constexpr char kFormerDaemon[] = "fineserved (former)";

template <typename... Parts>
absl::Status Contradiction(const Parts&... parts) {
  return absl::DataLossError(
      absl::StrCat("the slab table contradicts itself: ", parts...));
}

absl::Status CheckSlab(const abi::TableSnapshot& kept, uint32_t slab,
                       const std::set<uint32_t>& engines) {
  const abi::SlabWord word = kept.slabs[slab].word;
  const bool held = word.state == SlabState::kFull || abi::IsInView(word) ||
                    word.state == SlabState::kQuarantined;
  if (held != (word.engine != 0) || held != (word.lease != 0)) {
    return Contradiction("slab ", slab, " has an engine or a lease, or lacks ",
                         "one");
  }
  if (held && engines.count(word.engine) == 0) {
    return Contradiction("slab ", slab, " is held by engine ", word.engine,
                         ", which is not listed");
  }
  if (word.lease > kept.last_lease) {
    return Contradiction("slab ", slab, " has lease ", word.lease, " of ",
                         kept.last_lease);
  }
  return absl::OkStatus();
}

absl::Status Check(const abi::TableSnapshot& kept) {
  if (kept.torn_engines != 0) return Contradiction("engines are half-written");
  std::set<uint32_t> engines;
  for (const abi::EngineSnapshot& engine : kept.engines) {
    if (engine.id == 0 || engine.id > kept.last_engine ||
        !engines.insert(engine.id).second) {
      return Contradiction("there is an engine ", engine.id, " of ",
                           kept.last_engine);
    }
  }
  if (kept.wanted_slabs == 0 || kept.wanted_slabs > kept.slabs.size()) {
    return Contradiction("the pool should have ", kept.wanted_slabs,
                         " slabs of ", kept.slabs.size());
  }
  for (uint32_t i = 0; i < kept.slabs.size(); ++i) {
    absl::Status s = CheckSlab(kept, i, engines);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

PoolCounters CountersOf(const abi::CounterSnapshot& kept) {
  return {kept.leases_granted,    kept.leases_denied, kept.slabs_zeroed,
          kept.slabs_quarantined, kept.engines_died,  kept.slabs_asked_back,
          kept.slabs_returned,    kept.slabs_added,   kept.slabs_withdrawn};
}

}  // namespace

absl::StatusOr<PoolState> PoolState::Adopt(const abi::TableSnapshot& kept,
                                           uint64_t now_ns) {
  absl::Status s = Check(kept);
  if (!s.ok()) return s;
  std::vector<abi::SlabWord> words;
  std::vector<abi::LeaseAsker> askers;
  for (const abi::SlabSnapshot& slab : kept.slabs) {
    words.push_back(slab.word);
    askers.push_back(slab.asker);
  }
  PoolState pool({kept.granule_bytes, kept.granules_per_slab,
                  static_cast<uint32_t>(words.size())},
                 SlabManager(words, askers, kept.last_lease),
                 kept.wanted_slabs);
  pool.last_engine_ = kept.last_engine;
  pool.counters_ = CountersOf(kept.counters);
  pool.moved_ns_.assign(words.size(), now_ns);
  // Engines that died while no daemon ran may have died of any of the GPU's
  // errors.
  pool.memory_errors_.Set(0);
  for (const abi::EngineSnapshot& engine : kept.engines) {
    s = pool.Take(engine, now_ns);
    if (!s.ok()) return s;
  }
  if (pool.slabs_.zeroing_count() > 0) {
    s = pool.AwaitFormerDaemon(static_cast<pid_t>(kept.daemon_pid), now_ns);
    if (!s.ok()) return s;
  }
  return pool;
}

absl::Status PoolState::Take(const abi::EngineSnapshot& kept, uint64_t now_ns) {
  const EngineId id{kept.id};
  Engine& engine = engines_[id];
  engine.slot = kept.slot;
  engine.name = kept.raw_name;
  engine.uid = kept.uid;
  engine.state = kept.state;
  engine.since_ns = kept.since_ns;
  engine.limit = kept.limit;
  engine.has_unknown = kept.exited_count > kept.exited_pids.size();
  engine.exited.insert(kept.exited_pids.begin(), kept.exited_pids.end());
  free_slots_.erase(kept.slot);
  if (kept.state == EngineState::kQuarantined) {
    slabs_.Quarantine(id);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < kept.member_pids.size(); ++i) {
    engine.members[static_cast<pid_t>(kept.member_pids[i])] =
        kept.member_images[i];
  }
  if (kept.view.state == ViewState::kNone) return absl::OkStatus();
  absl::StatusOr<View> view = TakeView(kept.view, now_ns);
  if (!view.ok()) return view.status();
  engine.view = *std::move(view);
  // Wakes the engine, which then finds that it has to join again.
  if (engine.view->state == ViewState::kActive) Touch(id);
  return absl::OkStatus();
}

absl::StatusOr<PoolState::View> PoolState::TakeView(const abi::ViewRecord& kept,
                                                    uint64_t now_ns) const {
  absl::StatusOr<SlabLayout> layout = SlabLayout::Create(
      geometry_, {kept.planes, kept.page_bytes, kept.block_tokens});
  if (!layout.ok()) {
    return Contradiction("a view's format: ",
                         std::string(layout.status().message()));
  }
  View view{static_cast<pid_t>(kept.pid),
            kept.mode,
            *layout,
            kept.slabs,
            kept.floor,
            kept.cap,
            (kept.flags & abi::kViewOfGroup) != 0,
            kept.shape};
  view.state = kept.state;
  view.runs_pool = static_cast<pid_t>(kept.runs_pool);
  view.offer = kept.offer;
  view.wanted = kept.wanted;
  view.target = kept.target;
  view.asked_ns = now_ns;
  view.registered = (kept.flags & abi::kViewIsRegistered) != 0;
  return view;
}

// Makes a dead engine whose quarantine waits for the end of `daemon` and of the
// daemons that `daemon` itself waited for. One such engine represents all of
// them. If some of them are unknown, a second such engine exists, whose
// quarantine never ends.
absl::Status PoolState::AwaitFormerDaemon(pid_t daemon, uint64_t now_ns) {
  std::set<pid_t> daemons = {daemon};
  EngineId id = kNoEngine;
  for (const auto& [former, engine] : engines_) {
    if (engine.name != kFormerDaemon ||
        engine.state != EngineState::kQuarantined) {
      continue;
    }
    daemons.insert(engine.exited.begin(), engine.exited.end());
    if (!engine.has_unknown) id = former;
  }
  if (id == kNoEngine && free_slots_.empty()) {
    return absl::UnavailableError(
        "there is no room in the slab table to note which daemon has ended");
  }
  if (id == kNoEngine) id = Make(kFormerDaemon, 0, now_ns);
  engines_[id].state = EngineState::kQuarantined;
  engines_[id].exited = std::move(daemons);
  effects_.records.insert(id);
  former_daemon_ = id;
  return absl::OkStatus();
}

void PoolState::HoldBackFills() {
  if (former_daemon_ != kNoEngine) {
    slabs_.QuarantineZeroing(former_daemon_);
    effects_.records.insert(std::exchange(former_daemon_, kNoEngine));
  }
  ReturnUnseenWithoutHolder();
}

// Returns leases of processes that had exited before the grant.
void PoolState::ReturnUnseenWithoutHolder() {
  for (const auto& [lease, holder] : slabs_.Unseen()) {
    const Engine& engine = engines_.at(holder.engine);
    if (engine.members.count(holder.asker.pid) != 0) continue;
    Return(holder.engine, lease).IgnoreError();
  }
}

std::vector<pid_t> PoolState::MembersOf(EngineId engine) const {
  std::vector<pid_t> pids;
  const auto found = engines_.find(engine);
  if (found == engines_.end()) return pids;
  for (const auto& [pid, image] : found->second.members) pids.push_back(pid);
  return pids;
}

std::vector<PoolState::Member> PoolState::Members() const {
  std::vector<Member> members;
  for (const auto& [id, engine] : engines_) {
    for (const auto& [pid, image] : engine.members) {
      members.push_back({pid, image});
    }
  }
  return members;
}

std::vector<SlabId> PoolState::PresentSlabs() const {
  std::vector<SlabId> present;
  for (SlabId slab : FirstSlabs(slabs_.slab_count())) {
    if (slabs_.word(slab).state != SlabState::kAbsent) present.push_back(slab);
  }
  return present;
}

std::vector<EngineId> PoolState::Views() const {
  std::vector<EngineId> views;
  for (const auto& [id, engine] : engines_) {
    if (engine.view) views.push_back(id);
  }
  return views;
}

}  // namespace fineserve::slab
