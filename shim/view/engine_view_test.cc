#include "shim/view/engine_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/abi/view_scoreboard_reader.h"
#include "shim/testdata/view_fixture.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using abi::SlabState;
using driver::CUDA_SUCCESS;
using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Lt;
using testing::Pair;
using Fault = FakeDaemon::Fault;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kPage = 64 << 10;
constexpr uint32_t kSlabs = 6;
// A slab: two granules of 2 MiB, one for each of two planes.
constexpr uint64_t kShare = 2 * kMiB;
constexpr uint32_t kSlabBlocks = kShare / kPage;

fs_kv_format Format(uint32_t mode = FS_KV_VIEW) {
  fs_kv_format f = {};
  f.struct_bytes = sizeof(f);
  f.mode = mode;
  f.planes = 2;
  f.planes_per_allocation = 1;
  f.page_bytes = kPage;
  f.block_tokens = 16;
  return f;
}

class EngineViewTest : public ViewFixture {
 protected:
  int Register(const fs_kv_format& format = Format()) {
    geometry_.struct_bytes = sizeof(geometry_);
    return view_.Register(driver_, format, &geometry_);
  }
  void AddTensors(uint32_t count = 2) {
    for (uint32_t i = 0; i < count; ++i) {
      Redirection tensor;
      ASSERT_EQ(
          view_.AddTensor(driver_, geometry_.blocks * kPage, &tensor).outcome,
          MapOutcome::kMapped);
      tensors_.push_back(tensor);
    }
  }
  // With a daemon of kSlabs slabs.
  void Serve(uint32_t mode = FS_KV_VIEW, FakeDaemon::Options options = {}) {
    options.slab_count = kSlabs;
    StartDaemon(options);
    ASSERT_EQ(Register(Format(mode)), FS_OK) << KvErrorText();
    AddTensors();
    scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
    ASSERT_EQ(view_.Activate(driver_), FS_OK) << KvErrorText();
  }
  // A step that begins and ends at once.
  void Step() { ASSERT_EQ(view_.EndStep(view_.BeginStep(driver_)), FS_OK); }
  std::vector<uint32_t> Allocate(uint32_t count) {
    std::vector<uint32_t> ids(count);
    EXPECT_EQ(view_.Allocate(count, ids.data()), FS_OK) << KvErrorText();
    return ids;
  }
  int Free(const std::vector<uint32_t>& ids) {
    return view_.Free(static_cast<uint32_t>(ids.size()), ids.data());
  }
  fs_kv_stats Stats() {
    fs_kv_stats stats = {};
    EXPECT_EQ(view_.ReadStats(&stats), FS_OK);
    return stats;
  }
  std::vector<std::pair<uint32_t, uint32_t>> Poll(uint32_t capacity = 16) {
    fs_kv_change changes[16];
    const int count = view_.Poll(driver_, changes, capacity);
    EXPECT_GE(count, 0) << KvErrorText();
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (int i = 0; i < count; ++i) {
      all.emplace_back(changes[i].view_index, changes[i].kind);
    }
    return all;
  }
  bool HasSlab(uint32_t v) const {
    return HandleAt(tensors_[0].base + v * kShare) ==
               kPoolHandle + (v - 1) * 2 &&
           HandleAt(tensors_[1].base + v * kShare) ==
               kPoolHandle + (v - 1) * 2 + 1;
  }
  std::vector<std::pair<uint32_t, uint32_t>> GivenBack(size_t count) {
    daemon_->Eventually(
        [&](const auto& log) { return log.returned.size() >= count; });
    return daemon_->views().returned;
  }
  uint32_t LastWanted() {
    const uint32_t expected = Stats().wanted_slabs;
    daemon_->Eventually([&](const auto& log) {
      return !log.wanted.empty() && log.wanted.back() == expected;
    });
    const auto wanted = daemon_->views().wanted;
    return wanted.empty() ? UINT32_MAX : wanted.back();
  }
  void KillDaemon() {
    daemon_.reset();
    link_.Look();
  }

  EngineView view_{&link_, &scoreboard_};
  fs_kv_geometry geometry_ = {};
  std::vector<Redirection> tensors_;
};

TEST_F(EngineViewTest, RegistrationTellsWhatTheViewWillBe) {
  StartDaemon({.slab_count = kSlabs, .floor_slabs = 2, .cap_slabs = 4});
  fs_kv_format format = Format(FS_KV_GUARDED);
  format.floor_blocks = 40;
  format.cap_blocks = 100;
  ASSERT_EQ(Register(format), FS_OK) << KvErrorText();
  EXPECT_EQ(geometry_.slab_count, kSlabs);
  EXPECT_EQ(geometry_.blocks, (kSlabs + 1) * kSlabBlocks);
  EXPECT_EQ(geometry_.plane_bytes, kShare);
  EXPECT_EQ(geometry_.floor_slabs, 2u);
  EXPECT_EQ(geometry_.cap_slabs, 4u);
  const abi::ViewRequest asked = daemon_->views().request;
  EXPECT_EQ(asked.mode, abi::ViewMode::kGuarded);
  EXPECT_EQ(asked.planes, 2u);
  EXPECT_EQ(asked.page_bytes, kPage);
  EXPECT_EQ(asked.floor_blocks, 40u);
  EXPECT_EQ(asked.cap_blocks, 100u);
  uint64_t first = 0, end = 0;
  EXPECT_EQ(view_.SlabBlocks(2, &first, &end), FS_OK);
  EXPECT_EQ(first, 2 * kSlabBlocks);
  EXPECT_EQ(end, 3 * kSlabBlocks);
  EXPECT_EQ(view_.SlabBlocks(kSlabs + 1, &first, &end), FS_INVALID);
}

TEST_F(EngineViewTest, FewerBlocksHaveRoomForFewerSlabs) {
  StartDaemon({.slab_count = kSlabs});
  fs_kv_format format = Format();
  format.blocks = 4 * kSlabBlocks - 1;  // the fourth index is one block short
  ASSERT_EQ(Register(format), FS_OK);
  EXPECT_EQ(geometry_.slab_count, 2u);
  EXPECT_EQ(geometry_.blocks, format.blocks);
}

TEST_F(EngineViewTest, PagesThatDivideNothingLoseNoSlab) {
  StartDaemon({.slab_count = kSlabs});
  fs_kv_format format = Format();
  format.page_bytes = 33'792;
  ASSERT_EQ(Register(format), FS_OK);
  EXPECT_EQ(geometry_.slab_count, kSlabs);
  EXPECT_EQ(geometry_.blocks, (kSlabs + 1) * kShare / 33'792);
}

struct BadFormat {
  const char* name;
  const char* complaint;
  void (*spoil)(fs_kv_format*);
};
class BadFormats : public EngineViewTest,
                   public testing::WithParamInterface<BadFormat> {};

TEST_P(BadFormats, AreNamedAndLeaveNoView) {
  StartDaemon({.slab_count = kSlabs, .floor_slabs = 2});
  fs_kv_format format = Format();
  GetParam().spoil(&format);
  EXPECT_EQ(Register(format), FS_INVALID);
  EXPECT_THAT(KvErrorText(), HasSubstr(GetParam().complaint));
  EXPECT_FALSE(view_.in_use());
  EXPECT_EQ(Register(), FS_OK) << KvErrorText();
}

INSTANTIATE_TEST_SUITE_P(
    Formats, BadFormats,
    testing::Values(
        BadFormat{"OtherSize", "struct_bytes",
                  [](fs_kv_format* f) { f->struct_bytes = 8; }},
        BadFormat{"Mode", "mode", [](fs_kv_format* f) { f->mode = 4; }},
        BadFormat{"NoPlanes", "planes", [](fs_kv_format* f) { f->planes = 0; }},
        BadFormat{"Planes", "planes",
                  [](fs_kv_format* f) { f->planes = 10'000; }},
        BadFormat{"Allocations", "do not divide",
                  [](fs_kv_format* f) { f->planes_per_allocation = 3; }},
        BadFormat{"NoScoreboard", "page_bytes",
                  [](fs_kv_format* f) { f->page_bytes = 0; }},
        BadFormat{"TooManyBlocks", "too many",
                  [](fs_kv_format* f) { f->blocks = uint64_t{1} << 60; }},
        BadFormat{"BelowItsFloor", "the floor of 2 slabs takes 96",
                  [](fs_kv_format* f) { f->blocks = 80; }},
        BadFormat{"PlanesThatDoNotAbut", "multiple of 32",
                  [](fs_kv_format* f) {
                    f->planes_per_allocation = 2;
                    f->blocks = 7 * 32 + 1;
                  }}),
    [](const auto& info) { return info.param.name; });

TEST_F(EngineViewTest, WhatTheDaemonSaysNoToIsPassedOn) {
  StartDaemon({.fault = Fault::kRefuseView, .slab_count = kSlabs});
  EXPECT_EQ(Register(), FS_REFUSED);
  EXPECT_THAT(KvErrorText(), HasSubstr("hold no such block"));
}

TEST_F(EngineViewTest, DaemonThatLiesAboutItsPoolIsNotJoinedForAView) {
  for (const Fault fault : {Fault::kWrongView, Fault::kShrinkable}) {
    StartDaemon({.fault = fault, .slab_count = kSlabs});
    EXPECT_EQ(Register(), FS_NO_DAEMON);
    EXPECT_THAT(KvErrorText(), HasSubstr("no usable view"));
    EXPECT_FALSE(view_.in_use());
    daemon_.reset();
  }
}

TEST_F(EngineViewTest, WithoutADaemonThereIsNoView) {
  EXPECT_EQ(Register(), FS_NO_DAEMON);
  EXPECT_FALSE(view_.in_use());
}

TEST_F(EngineViewTest, ActivationNeedsThePluginsWordAndEveryTensor) {
  StartDaemon({.slab_count = kSlabs});
  EXPECT_EQ(view_.Activate(driver_), FS_STATE) << "no view";
  ASSERT_EQ(Register(), FS_OK);
  EXPECT_EQ(Register(), FS_STATE) << "one per process";
  AddTensors(1);
  scoreboard_.RaisePluginStage(FS_KV_POOL_REPLACED);
  EXPECT_EQ(view_.Activate(driver_), FS_STATE);
  EXPECT_THAT(KvErrorText(), HasSubstr("FS_KV_POOL_CONSTRUCTED"));
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  EXPECT_EQ(view_.Activate(driver_), FS_STATE);
  EXPECT_THAT(KvErrorText(), HasSubstr("missing"));
  AddTensors(1);
  EXPECT_EQ(view_.BeginStep(driver_), 0u) << "not active";
  EXPECT_EQ(view_.Activate(driver_), FS_OK) << KvErrorText();
  EXPECT_EQ(view_.Activate(driver_), FS_STATE) << "once";
  EXPECT_EQ(daemon_->views().active_slabs, kSlabs);
  EXPECT_EQ(daemon_->views().active_wanted, 1u) << "its floor";
  EXPECT_TRUE(HasSlab(1));
  EXPECT_TRUE(HasSlab(kSlabs));
}

TEST_F(EngineViewTest, ActivationWaitsForTheContextFirst) {
  StartDaemon({.slab_count = kSlabs});
  ASSERT_EQ(Register(), FS_OK);
  AddTensors();
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  fake_.log.clear();
  ASSERT_EQ(view_.Activate(driver_), FS_OK);
  EXPECT_THAT(
      std::vector(fake_.log.begin(), fake_.log.begin() + 3),
      ElementsAre("cuCtxPushCurrent", "cuCtxSynchronize", "cuCtxPopCurrent"));
  EXPECT_EQ(Stats().driver_calls_serving, 0u);
  EXPECT_THAT(Stats().driver_calls_to_activate,
              AllOf(Ge(fake_.log.size()), Lt(3 * fake_.log.size())));
}

struct BadStart {
  const char* name;
  Fault fault;
  int error;
};
class BadStarts : public EngineViewTest,
                  public testing::WithParamInterface<BadStart> {};

TEST_P(BadStarts, FailActivationAndLeaveNothingOfThePool) {
  StartDaemon(
      {.fault = GetParam().fault, .slab_count = kSlabs, .most_granules = 3});
  ASSERT_EQ(Register(), FS_OK);
  AddTensors();
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  EXPECT_EQ(view_.Activate(driver_), GetParam().error) << KvErrorText();
  EXPECT_EQ(PoolMappings(), 0u);
  EXPECT_EQ(view_.BeginStep(driver_), 0u);
  EXPECT_EQ(view_.Activate(driver_), FS_STATE) << "no second try";
  for (const Redirection& t : tensors_) {
    EXPECT_EQ(view_.FreeTensor(driver_, t), CUDA_SUCCESS);
  }
  EXPECT_EQ(fake_.reserved_bytes, 0u);
  EXPECT_FALSE(view_.in_use());
}

INSTANTIATE_TEST_SUITE_P(
    Faults, BadStarts,
    testing::Values(
        BadStart{"Refused", Fault::kRefuseActivate, FS_REFUSED},
        BadStart{"Lost", Fault::kCloseAtActivate, FS_NO_DAEMON},
        BadStart{"LostMidway", Fault::kCloseAtPoolGranules, FS_NO_DAEMON},
        BadStart{"NoGranules", Fault::kRefusePoolGranules, FS_REFUSED}),
    [](const auto& info) { return info.param.name; });

TEST_F(EngineViewTest, StepHandsOutLeasedSlabsBlocksOnly) {
  Serve();
  uint32_t id = 0;
  Step();
  EXPECT_EQ(view_.Allocate(1, &id), FS_EXHAUSTED) << "nothing is leased";
  daemon_->Lease(3, 7);  // view index 4
  EXPECT_EQ(view_.Allocate(1, &id), FS_EXHAUSTED) << "not before a step begins";
  Step();
  for (uint32_t block : Allocate(kSlabBlocks)) {
    EXPECT_THAT(block, AllOf(Ge(4 * kSlabBlocks), Lt(5 * kSlabBlocks)));
  }
  EXPECT_EQ(view_.Allocate(1, &id), FS_EXHAUSTED);
  EXPECT_EQ(Stats().driver_calls_serving, 0u);
}

TEST_F(EngineViewTest, SlabGoesBackWhenItsLastStepHasEnded) {
  Serve();
  daemon_->Lease(0, 5);
  Step();
  const auto blocks = Allocate(3);
  const uint64_t step = view_.BeginStep(driver_);
  daemon_->AskBack(0, 5);
  const uint64_t next = view_.BeginStep(driver_);
  EXPECT_EQ(Stats().leaving_slabs, 1u);
  EXPECT_EQ(Stats().free_blocks, 0u);
  EXPECT_EQ(Free(blocks), FS_OK);
  EXPECT_EQ(view_.EndStep(step), FS_OK);
  const uint64_t last = view_.BeginStep(driver_);
  EXPECT_THAT(daemon_->views().returned, IsEmpty())
      << "a step in flight may still write it";
  EXPECT_EQ(view_.EndStep(next), FS_OK);
  EXPECT_EQ(view_.EndStep(last), FS_OK);
  Step();
  EXPECT_THAT(GivenBack(1), ElementsAre(Pair(0, 5)));
  EXPECT_EQ(Stats().returned_slabs, 1u);
  EXPECT_EQ(Stats().leased_slabs, 0u);
  daemon_->Lease(0, 6);
  Step();
  Allocate(kSlabBlocks);
}

TEST_F(EngineViewTest, WantFollowsUseAndWatermarkUpToTheCap) {
  Serve(FS_KV_VIEW, {.cap_slabs = 3});
  for (uint32_t s = 0; s < 3; ++s) daemon_->Lease(s, s + 1);
  view_.SetWatermark(1);
  Step();
  EXPECT_EQ(Stats().wanted_slabs, 1u);
  const auto some = Allocate(kSlabBlocks);
  Step();
  EXPECT_EQ(LastWanted(), 2u);
  view_.SetWatermark(10 * kSlabBlocks);
  Step();
  EXPECT_EQ(LastWanted(), 3u);
  Free(some);
  view_.SetWatermark(0);
  Step();
  EXPECT_EQ(LastWanted(), 0u);
}

TEST_F(EngineViewTest, FailedAllocationAsksForWhatItLacked) {
  Serve();
  Step();
  uint32_t ids[3 * kSlabBlocks];
  EXPECT_EQ(view_.Allocate(std::size(ids), ids), FS_EXHAUSTED);
  EXPECT_EQ(LastWanted(), 3u);
  Step();
  EXPECT_EQ(LastWanted(), 3u) << "it is still short";
  for (uint32_t s = 0; s < 3; ++s) daemon_->Lease(s, s + 1);
  Step();
  EXPECT_EQ(view_.Allocate(std::size(ids), ids), FS_OK);
}

TEST_F(EngineViewTest, WatermarkIsMissedOnlyWhileThePoolHadAFreeSlabForUs) {
  Serve(FS_KV_VIEW, {.cap_slabs = 1});
  Step();
  uint32_t id = 0;
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().failed_allocations, 1u);
  EXPECT_EQ(Stats().watermark_misses, 1u);
  daemon_->Lease(0, 1);
  Step();
  Allocate(kSlabBlocks);
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().failed_allocations, 2u);
  EXPECT_EQ(Stats().watermark_misses, 1u) << "at its cap";
}

TEST_F(EngineViewTest, SlabThatBecameFreeWithinTheStepIsNoWatermarkMiss) {
  Serve();
  for (uint32_t s = 0; s < kSlabs; ++s) {
    daemon_->SetSlab(s, {SlabState::kPartial, 9, s + 1});
  }
  Step();
  daemon_->SetFreeSince(0, UINT64_MAX);
  uint32_t id = 0;
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().watermark_misses, 0u);
  daemon_->SetFreeSince(0, 1);
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().watermark_misses, 1u);
}

TEST_F(EngineViewTest, WatermarkIsNotMissedWhenOthersHaveAll) {
  Serve();
  for (uint32_t s = 0; s < kSlabs; ++s) {
    daemon_->SetSlab(s, {SlabState::kPartial, 9, s + 1});
  }
  Step();
  uint32_t id = 0;
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().failed_allocations, 1u);
  EXPECT_EQ(Stats().watermark_misses, 0u);
}

TEST_F(EngineViewTest, StepsEndInOrderAndOnce) {
  Serve();
  const uint64_t a = view_.BeginStep(driver_);
  const uint64_t b = view_.BeginStep(driver_);
  EXPECT_EQ(view_.EndStep(b + 1), FS_INVALID);
  EXPECT_EQ(view_.EndStep(b), FS_OK);
  EXPECT_EQ(view_.EndStep(a), FS_INVALID);
}

TEST_F(EngineViewTest, FreeOfWhatIsNotAllocatedNamesTheBlock) {
  Serve();
  daemon_->Lease(0, 1);
  Step();
  const auto ids = Allocate(2);
  EXPECT_EQ(Free({ids[0], ids[0]}), FS_INVALID);
  EXPECT_THAT(KvErrorText(), HasSubstr(std::to_string(ids[0])));
  EXPECT_EQ(Stats().used_blocks, 1u);
}

TEST_F(EngineViewTest, OwnPoolHearsOfEachLeaseAndEachAskBackOnce) {
  Serve();
  EXPECT_THAT(Poll(), IsEmpty());
  daemon_->Lease(1, 5);
  daemon_->Lease(2, 6);
  EXPECT_THAT(Poll(1), ElementsAre(Pair(2, FS_KV_LEASED)));
  EXPECT_EQ(view_.Wait(driver_, kPatienceMs), 1) << "there is one untold";
  EXPECT_THAT(Poll(), ElementsAre(Pair(3, FS_KV_LEASED)));
  EXPECT_THAT(Poll(), IsEmpty());
  daemon_->AskBack(1, 5);
  EXPECT_THAT(Poll(), ElementsAre(Pair(2, FS_KV_ASKED_BACK)));
  EXPECT_EQ(view_.ReturnSlab(2), FS_OK);
  EXPECT_EQ(view_.ReturnSlab(2), FS_INVALID);
  EXPECT_THAT(daemon_->views().returned, IsEmpty());
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(GivenBack(1), ElementsAre(Pair(1, 5)));
}

TEST_F(EngineViewTest, ManyReturnsTakeSeveralNotices) {
  StartDaemon({.slab_count = 150});
  ASSERT_EQ(Register(), FS_OK);
  AddTensors();
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  ASSERT_EQ(view_.Activate(driver_), FS_OK);
  for (uint32_t s = 0; s < 150; ++s) daemon_->Lease(s, s + 1);
  Step();
  for (uint32_t s = 0; s < 150; ++s) daemon_->AskBack(s, s + 1);
  Step();
  EXPECT_EQ(GivenBack(150).size(), 150u);
}

TEST_F(EngineViewTest, WantIsSentOnceForEachChange) {
  Serve();
  for (const uint32_t want : {3u, 3u, 2u}) EXPECT_EQ(view_.Want(want), FS_OK);
  EXPECT_EQ(LastWanted(), 2u);
  EXPECT_THAT(daemon_->views().wanted, ElementsAre(3, 2));
}

// Another thread's exchange may take as long as a zero fill.
TEST_F(EngineViewTest, BusyLinkNeitherBlocksTheSchedulerNorLosesItsNotices) {
  Serve(FS_KV_VIEW, {.fault = Fault::kSilentAtLease});
  daemon_->Lease(1, 5);
  Poll();
  std::atomic<bool> asking{true};
  std::thread other([&] {
    Lease lease;
    link_.LeaseSlabs(1, &lease);  // waits until the daemon ends
    asking = false;
  });
  EXPECT_TRUE(
      FakeDaemon::Becomes([&] { return daemon_->leases_asked() == 1; }));
  view_.ReturnSlab(2);
  EXPECT_EQ(view_.Want(4), FS_OK);
  EXPECT_TRUE(asking) << "it did not wait";
  EXPECT_EQ(Stats().leased_slabs, 1u);
  daemon_.reset();
  other.join();
}

TEST_F(EngineViewTest, WaitEndsWithAChangeOrItsTimeout) {
  Serve();
  EXPECT_EQ(view_.Wait(driver_, 1), 0);
  std::thread daemon([&] {
    usleep(20'000);
    daemon_->Lease(1, 5);
  });
  EXPECT_EQ(view_.Wait(driver_, kPatienceMs), 1);
  daemon.join();
  EXPECT_EQ(view_.Wait(driver_, kPatienceMs), 1) << "until somebody looks";
  EXPECT_EQ(Poll().size(), 1u);
  EXPECT_EQ(view_.Wait(driver_, 1), 0);
  EXPECT_EQ(view_.Wait(driver_, -1), -FS_INVALID);
}

TEST_F(EngineViewTest, LeasesStayWhenTheDaemonHasGone) {
  Serve();
  daemon_->Lease(0, 5);
  daemon_->Lease(1, 6);
  Step();
  const auto blocks = Allocate(2 * kSlabBlocks);
  daemon_->AskBack(0, 5);
  const uint64_t step = view_.BeginStep(driver_);
  EXPECT_EQ(Free(blocks), FS_OK);
  EXPECT_EQ(view_.EndStep(step), FS_OK);
  KillDaemon();
  Step();  // drained, with nobody to give it to: linked again
  EXPECT_EQ(Stats().leased_slabs, 2u);
  Allocate(2 * kSlabBlocks);
  EXPECT_EQ(view_.Wait(driver_, 1), -FS_NO_DAEMON);
  EXPECT_THAT(KvErrorText(), HasSubstr("leased slabs stay"));
}

TEST_F(EngineViewTest, OwnPoolGetsBackWhatNobodyTook) {
  Serve();
  daemon_->Lease(0, 5);
  Poll();
  KillDaemon();
  view_.ReturnSlab(1);
  EXPECT_THAT(Poll(), ElementsAre(Pair(1, FS_KV_LEASED)));
  EXPECT_THAT(Poll(), IsEmpty());
}

TEST_F(EngineViewTest, NewDaemonHearsNothingOfTheOldOnesLeases) {
  Serve();
  daemon_->Lease(0, 5);
  Poll();
  KillDaemon();
  StartDaemon({.epoch = 43, .slab_count = kSlabs});
  Join();
  view_.ReturnSlab(1);
  view_.Want(3);
  EXPECT_THAT(Poll(), ElementsAre(Pair(1, FS_KV_LEASED)));
  EXPECT_EQ(view_.Close(driver_), FS_OK);
  EXPECT_THAT(daemon_->views().returned, IsEmpty());
  EXPECT_THAT(daemon_->views().wanted, IsEmpty());
  EXPECT_EQ(daemon_->views().closed, 0);
}

TEST_F(EngineViewTest, GuardedSlabIsMappedBeforeUseAndUnmappedBeforeItGoes) {
  Serve(FS_KV_GUARDED);
  EXPECT_EQ(PoolMappings(), 0u);
  daemon_->Lease(1, 5);
  Step();
  EXPECT_TRUE(HasSlab(2));
  EXPECT_EQ(PoolMappings(), 2u);
  const auto blocks = Allocate(1);
  daemon_->AskBack(1, 5);
  Step();
  EXPECT_TRUE(HasSlab(2)) << "a block is in use";
  Free(blocks);
  Step();
  EXPECT_EQ(PoolMappings(), 0u);
  EXPECT_THAT(GivenBack(1), ElementsAre(Pair(1, 5)));
  EXPECT_GT(Stats().driver_calls_serving, 0u);
}

TEST_F(EngineViewTest, GuardedSlabsAreNotExchangedUnderAStepInFlight) {
  Serve(FS_KV_GUARDED);
  view_.SetWatermark(1);
  daemon_->Lease(0, 4);
  Step();
  ASSERT_EQ(Stats().free_blocks, kSlabBlocks);
  const uint64_t step = view_.BeginStep(driver_);
  daemon_->Lease(1, 5);
  fake_.log.clear();
  const uint64_t next = view_.BeginStep(driver_);
  EXPECT_THAT(fake_.log, IsEmpty()) << "it has blocks: no hurry";
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
  Allocate(kSlabBlocks);
  const uint64_t third = view_.BeginStep(driver_);
  EXPECT_EQ(fake_.log.at(1), "cuCtxSynchronize") << "it would run dry";
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
  for (const uint64_t s : {step, next, third}) view_.EndStep(s);
}

TEST_F(EngineViewTest, GuardedSlabThatCannotBeMappedIsNotUsed) {
  Serve(FS_KV_GUARDED);
  fake_.fail = "cuMemImport";
  daemon_->Lease(1, 5);
  Step();
  EXPECT_EQ(Stats().free_blocks, 0u);
  EXPECT_EQ(Stats().leased_slabs, 1u);
  EXPECT_TRUE(IsScratch(tensors_[0].base + 2 * kShare));
}

TEST_F(EngineViewTest, SlabByWhichThePoolGrewIsMappedWithItsFirstLease) {
  StartDaemon({.slab_count = kSlabs});
  ASSERT_EQ(Register(), FS_OK);
  AddTensors();
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  daemon_->SetSlab(2, {SlabState::kAbsent, 0, 0});
  ASSERT_EQ(view_.Activate(driver_), FS_OK);
  EXPECT_TRUE(IsScratch(tensors_[1].base + 3 * kShare));
  daemon_->Lease(2, 5);
  Step();
  EXPECT_TRUE(HasSlab(3));
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
}

TEST_F(EngineViewTest, WithdrawnSlabIsLetGoAndItsNextMemoryIsMapped) {
  Serve();
  const uint64_t step = view_.BeginStep(driver_);
  daemon_->Withdraw(2);
  const uint64_t next = view_.BeginStep(driver_);
  EXPECT_TRUE(HasSlab(3)) << "not under a step in flight";
  view_.EndStep(step);
  view_.EndStep(next);
  Step();
  EXPECT_TRUE(IsScratch(tensors_[0].base + 3 * kShare));
  EXPECT_EQ(PoolMappings(), 2u * (kSlabs - 1));
  daemon_->Regrow(2);
  daemon_->Lease(2, 5);
  Step();
  EXPECT_TRUE(HasSlab(3));
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
}

TEST_F(EngineViewTest, SlabThatBecameOtherMemoryUnseenIsMappedAnewBeforeUse) {
  Serve();
  daemon_->SetSlab(2, {SlabState::kAbsent}, /*tell=*/false);
  daemon_->Regrow(2);
  daemon_->Lease(2, 5);
  fake_.log.clear();
  Step();
  EXPECT_EQ(std::count(fake_.log.begin(), fake_.log.end(), "cuMemImport"), 2);
  EXPECT_TRUE(HasSlab(3));
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
  fake_.log.clear();
  daemon_->AskBack(2, 5);
  Step();
  daemon_->Lease(2, 6);
  Step();
  EXPECT_THAT(fake_.log, IsEmpty()) << "it is the same still";
}

TEST_F(EngineViewTest, FreedTensorEndsTheViewAndAnotherMayFollow) {
  Serve();
  daemon_->Lease(1, 5);
  Step();
  ASSERT_EQ(view_.FreeTensor(driver_, tensors_[0]), CUDA_SUCCESS);
  EXPECT_EQ(daemon_->views().closed, 1);
  EXPECT_EQ(PoolMappings(), 0u);
  EXPECT_EQ(view_.BeginStep(driver_), 0u);
  EXPECT_EQ(Register(), FS_STATE) << "a tensor is left";
  ASSERT_EQ(view_.FreeTensor(driver_, tensors_[1]), CUDA_SUCCESS);
  EXPECT_EQ(fake_.reserved_bytes, 0u);
  EXPECT_TRUE(fake_.created.empty());
  tensors_.clear();
  ASSERT_EQ(Register(), FS_OK) << KvErrorText();
  AddTensors();
  EXPECT_EQ(view_.Activate(driver_), FS_OK);
}

TEST_F(EngineViewTest, TensorFreedBeforeActivationEndsNothing) {
  StartDaemon({.slab_count = kSlabs});
  ASSERT_EQ(Register(), FS_OK);
  AddTensors();
  ASSERT_EQ(view_.FreeTensor(driver_, tensors_[1]), CUDA_SUCCESS);
  EXPECT_EQ(daemon_->views().closed, 0);
  tensors_.pop_back();
  AddTensors(1);
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  EXPECT_EQ(view_.Activate(driver_), FS_OK);
}

TEST_F(EngineViewTest, ContextThatCannotBeWaitedForKeepsTheView) {
  Serve();
  fake_.fail = "cuCtxSynchronize";
  EXPECT_NE(view_.FreeTensor(driver_, tensors_[0]), CUDA_SUCCESS);
  fake_.fail_after = 0;
  EXPECT_EQ(view_.Close(driver_), FS_DRIVER);
  EXPECT_EQ(daemon_->views().closed, 0);
  EXPECT_TRUE(HasSlab(1));
}

TEST_F(EngineViewTest, LeasesAreKeptWhenUnmappingFails) {
  Serve();
  fake_.fail = "cuMemUnmap";
  EXPECT_EQ(view_.Close(driver_), FS_DRIVER);
  EXPECT_EQ(daemon_->views().closed, 0) << "it may still be mapped";
  EXPECT_EQ(view_.BeginStep(driver_), 0u);
}

TEST_F(EngineViewTest, ViewScoreboardSaysWhatTheEngineDoes) {
  Serve();
  daemon_->Lease(0, 4);
  daemon_->Lease(2, 5);
  view_.SetWatermark(7);
  Step();
  Allocate(kSlabBlocks + 3);
  usleep(6'000);
  const uint64_t step = view_.BeginStep(driver_);
  usleep(6'000);
  view_.BeginStep(driver_);
  const auto scoreboard = abi::ReadViewScoreboard(daemon_->view_scoreboard());
  ASSERT_TRUE(scoreboard.ok()) << scoreboard.status();
  EXPECT_EQ(scoreboard->pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(scoreboard->engine_id, FakeDaemon::kEngine);
  EXPECT_EQ(scoreboard->epoch, 42u);
  EXPECT_EQ(scoreboard->used_blocks, kSlabBlocks + 3);
  EXPECT_EQ(scoreboard->free_blocks, kSlabBlocks - 3);
  EXPECT_EQ(scoreboard->watermark_blocks, 7u);
  EXPECT_EQ(scoreboard->linked_slabs, 2u);
  EXPECT_EQ(scoreboard->allocated_blocks, kSlabBlocks + 3);
  EXPECT_EQ(scoreboard->steps_begun, step);
  EXPECT_EQ(scoreboard->steps_ended, step - 1);
  EXPECT_GT(scoreboard->driver_calls_to_activate, 0u);
  EXPECT_EQ(scoreboard->driver_calls_serving, 0u);
  ASSERT_EQ(scoreboard->used.size(), kSlabs + 1);
  EXPECT_EQ(scoreboard->used[1] + scoreboard->used[3], kSlabBlocks + 3);
}

TEST_F(EngineViewTest, OwnPoolPublishesWhatItsSlabsDo) {
  Serve();
  EXPECT_EQ(view_.Publish(3, 17), FS_OK);
  EXPECT_EQ(view_.Publish(UINT32_MAX, 17), FS_OK) << "ignored";
  const auto scoreboard = abi::ReadViewScoreboard(daemon_->view_scoreboard());
  ASSERT_TRUE(scoreboard.ok()) << scoreboard.status();
  EXPECT_EQ(scoreboard->used[3], 17u);
}

TEST_F(EngineViewTest, OneEngineUsesOneOfTheTwoInterfaces) {
  Serve();
  Step();
  fs_kv_change change;
  EXPECT_EQ(view_.Poll(driver_, &change, 1), -FS_STATE);
}

}  // namespace
}  // namespace fineserve::shim
