#ifndef DAEMON_POOL_POOL_STATE_FIXTURE_H_
#define DAEMON_POOL_POOL_STATE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/pool/pool_state.h"

namespace fineserve::slab {

// A pool of 16 slabs of 4 granules whose effects are carried out at once. Its
// engines return a slab that was asked back when none of its blocks is in use.
class PoolStateTest : public ::testing::Test {
 protected:
  using SlabState = abi::SlabState;
  static constexpr uint32_t kSlabs = 16;
  static constexpr pid_t kDaemon = 1;

  PoolStateTest() { Settle(); }
  void TearDown() override { pool_.slabs().CheckInvariants(); }

  // 4 planes of 1 KiB pages: 4 blocks per slab.
  static ViewSpec Spec(uint64_t floor_slabs) {
    return {abi::ViewMode::kView, {4, 1024, 16}, floor_slabs * 4, 0};
  }
  EngineId Serve(pid_t pid, uint32_t wanted, uint64_t floor_slabs = 1) {
    const EngineId id = *pool_.Join(absl::StrCat("e", pid), 0, pid, now_ns_);
    EXPECT_TRUE(pool_.RegisterView(id, pid, Spec(floor_slabs), {}).ok());
    EXPECT_TRUE(pool_.ActivateView(id, pid, kSlabs, wanted, now_ns_).ok());
    pid_of_[id] = pid;
    Settle();
    return id;
  }
  EngineId JoinOnly(pid_t pid) {
    return *pool_.Join(absl::StrCat("e", pid), 0, pid, now_ns_);
  }
  // Creates engine e7 on several GPUs: 7 is its rank here, and 1007 runs its
  // blocks.
  EngineId ServeOnSeveralGpus() {
    const EngineId id = JoinOnly(7);
    ViewSpec spec = Spec(1);
    spec.group = true;
    EXPECT_TRUE(pool_.RegisterView(id, 7, spec, {}).ok());
    EXPECT_TRUE(pool_.ActivateView(id, 7, kSlabs, 1, now_ns_).ok());
    EXPECT_TRUE(pool_.Join("e7", 0, 1007, now_ns_).ok());
    EXPECT_TRUE(pool_.RunPool(id, 1007).ok());
    return id;
  }
  bool IsSuspended(EngineId id) const {
    return pool_.Record(id).view.state == abi::ViewState::kSuspended;
  }
  void Suspend(EngineId id) {
    Use(id, 0);
    EXPECT_TRUE(pool_.SuspendView(id, pid_of_[id]).ok());
    Settle();
  }
  // Registers the view again; returns false if its floor cannot be promised.
  bool Resume(EngineId id, uint32_t wanted, uint64_t floor_slabs) {
    const pid_t pid = pid_of_[id];
    if (!pool_.RegisterView(id, pid, Spec(floor_slabs), {}).ok()) return false;
    EXPECT_TRUE(pool_.ActivateView(id, pid, kSlabs, wanted, now_ns_).ok());
    Settle();
    return true;
  }
  void Want(EngineId id, uint32_t wanted) {
    EXPECT_EQ(pool_.Want(id, pid_of_[id], wanted, now_ns_), !IsSuspended(id));
    Settle();
  }
  // Limits the engine to `slabs`, but never below its floor.
  void Limit(EngineId id, uint32_t slabs) {
    EXPECT_TRUE(pool_.SetLimit(id, slabs).ok());
    Settle();
  }
  // Runs one round; returns how many slabs were leased or asked back in it.
  uint64_t Settle() {
    const uint64_t before = Moves();
    std::map<EngineId, uint32_t> held;
    for (EngineId id : pool_.Views()) held[id] = InView(id);
    pool_.Settle(
        now_ns_,
        [this](EngineId, SlabId slab) {
          const auto it = used_.find(slab);
          return it == used_.end() ? 0 : it->second;
        },
        [this](EngineId, SlabId slab) { return wished_.count(slab) != 0; });
    Execute();
    for (const auto& [id, slabs] : held) {
      if (pool_.HasView(id) && InView(id) > slabs) {
        EXPECT_LE(InView(id), pool_.CapOf(id)) << "leased above its limit";
      }
    }
    return Moves() - before;
  }
  void Execute() {
    for (Effects e = pool_.TakeEffects(); !e.empty(); e = pool_.TakeEffects()) {
      for (SlabId slab : e.make) pool_.Made(slab);
      for (SlabId slab : e.fill) {
        if (fills_work_) {
          pool_.Zeroed(slab);
        } else {
          pool_.NotZeroed(slab);
        }
      }
      asked_driver_ = asked_driver_ || e.list_processes;
      grants_.insert(grants_.end(), e.grants.begin(), e.grants.end());
      refusals_.insert(refusals_.end(), e.refusals.begin(), e.refusals.end());
    }
  }
  uint64_t Moves() const {
    return pool_.counters().leases_granted + pool_.counters().slabs_asked_back;
  }
  void Wait(uint64_t ns) { now_ns_ += ns; }
  // Sets the blocks in use to `blocks` in every slab of the view.
  void Use(EngineId id, uint32_t blocks) {
    for (const auto& [slab, lease] : pool_.slabs().InView(id)) {
      used_[slab] = blocks;
    }
  }
  // Acts like an engine at the start of a step: returns unused slabs that were
  // asked back.
  uint32_t ReturnDrained(EngineId id) {
    uint32_t returned = 0;
    for (const auto& [slab, lease] : pool_.slabs().InView(id)) {
      if (pool_.slabs().word(slab).state != SlabState::kReturning ||
          used_[slab] > 0) {
        continue;
      }
      EXPECT_TRUE(pool_.ReturnSlab(id, pid_of_[id], slab, lease).ok());
      ++returned;
    }
    Execute();
    return returned;
  }
  // Acts like an engine that could use more: uses a block in every slab that
  // was not asked back, and asks again because it finds no free block.
  void Starve(EngineId id) {
    for (const auto& [slab, lease] : pool_.slabs().InView(id)) {
      const bool stays = pool_.slabs().word(slab).state == SlabState::kPartial;
      used_[slab] = stays ? 4 : 0;
    }
    EXPECT_EQ(
        pool_.Want(id, pid_of_[id], pool_.Record(id).view.wanted, now_ns_),
        !IsSuspended(id));
  }
  // Lets time pass and engines return slabs until nothing moves; `starving`
  // engines use what they get.
  void Rest(const std::vector<EngineId>& engines,
            const std::vector<EngineId>& starving = {}) {
    for (int quiet = 0, round = 0; quiet < 5; ++round) {
      ASSERT_LT(round, 200) << "grants and ask-backs do not come to rest";
      Wait(PoolState::kPatienceNs);
      uint64_t moves = 0;
      for (EngineId id : engines) moves += ReturnDrained(id);
      for (EngineId id : starving) Starve(id);
      moves += Settle();
      quiet = moves == 0 ? quiet + 1 : 0;
    }
  }
  // Returns every engine's floor, wish, target and slabs.
  std::string Text(const std::vector<EngineId>& engines) {
    std::string text;
    for (EngineId id : engines) {
      const abi::ViewRecord view = pool_.Record(id).view;
      absl::StrAppend(&text, "\nengine ", Number(id), ": floor ", view.floor,
                      ", wanted ", view.wanted, ", target ", view.target,
                      ", slabs");
      for (const auto& [slab, lease] : pool_.slabs().InView(id)) {
        const bool asked =
            pool_.slabs().word(slab).state == SlabState::kReturning;
        absl::StrAppend(&text, " ", used_[slab], asked ? "!" : "");
      }
    }
    return text;
  }
  uint32_t InView(EngineId id) { return pool_.slabs().HeldBy(id).in_view; }
  uint32_t Returning(EngineId id) { return pool_.slabs().HeldBy(id).returning; }

  PoolState pool_{{4096, 4, kSlabs}, kSlabs};
  std::map<EngineId, pid_t> pid_of_;
  std::map<SlabId, uint32_t> used_;
  std::set<SlabId> wished_;  // by engines on several GPUs
  std::vector<SlabManager::Grant> grants_;
  std::vector<Refusal> refusals_;
  bool fills_work_ = true;
  bool asked_driver_ = false;
  uint64_t now_ns_ = 1'000'000'000;
};

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_POOL_STATE_FIXTURE_H_
