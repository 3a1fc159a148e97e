#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/contract/abi/scoreboard_reader.h"
#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using Fault = FakeDaemon::Fault;
using driver::CUDA_SUCCESS;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Lt;
using testing::Pair;

// Tests how views are registered: formats, the daemon's answers, the geometry.

TEST_F(EngineViewTest, RegistrationTellsWhatTheViewWillBe) {
  StartDaemon({.slab_count = kSlabs, .floor_slabs = 2, .cap_slabs = 4});
  fs_kv_format format = Format(FS_KV_GUARDED);
  format.floor_blocks = 40;
  format.cap_blocks = 100;
  format.groups[1] = {6, 16, 1024};
  format.states = 3;
  format.filling_tokens = 2048;
  format.answering_tokens = 2;
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
  const abi::KvShape shape = {{{}, {6, 16, 1024}}, 3, 2048, 2, 0};
  EXPECT_EQ(memcmp(&asked.shape, &shape, sizeof(shape)), 0);
  uint64_t first = 0, end = 0;
  EXPECT_EQ(view_.SlabBlocks(2, &first, &end), FS_OK);
  EXPECT_EQ(first, 2 * kSlabBlocks);
  EXPECT_EQ(end, 3 * kSlabBlocks);
  EXPECT_EQ(view_.SlabBlocks(kSlabs + 1, &first, &end), FS_INVALID);
}

TEST_F(EngineViewTest, PoolIsKnownBeforeAFormatIsChosen) {
  StartDaemon({.slab_count = kSlabs});
  fs_kv_pool pool = {};
  ASSERT_EQ(view_.ReadPool(driver_, &pool), FS_OK) << KvErrorText();
  EXPECT_EQ(pool.slab_count, kSlabs);
  EXPECT_EQ(pool.slab_bytes, 2 * kShare);  // of two planes
  EXPECT_EQ(pool.granule_bytes, kShare);
  ASSERT_EQ(Register(Format()), FS_OK) << "asking registers nothing";
}

TEST_F(EngineViewTest, WithoutADaemonThereIsNoPool) {
  fs_kv_pool pool = {};
  EXPECT_EQ(view_.ReadPool(driver_, &pool), FS_NO_DAEMON);
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
        BadFormat{"Allocations", "does not divide",
                  [](fs_kv_format* f) { f->planes_per_allocation = 3; }},
        BadFormat{"NoPage", "page_bytes",
                  [](fs_kv_format* f) { f->page_bytes = 0; }},
        BadFormat{"TooManyBlocks", "too many",
                  [](fs_kv_format* f) { f->blocks = uint64_t{1} << 60; }},
        BadFormat{"GroupOfNoTokens", "block_tokens",
                  [](fs_kv_format* f) { f->groups[2].count = 1; }},
        BadFormat{"States", "states",
                  [](fs_kv_format* f) { f->states = 1 << 20; }},
        BadFormat{"Reserved", "reserved",
                  [](fs_kv_format* f) { f->reserved = 1; }},
        BadFormat{"BelowItsFloor", "the floor of 2 slabs takes 96",
                  [](fs_kv_format* f) { f->blocks = 80; }},
        BadFormat{"PlanesThatDoNotAbut", "multiple of 32",
                  [](fs_kv_format* f) {
                    f->planes_per_allocation = 2;
                    f->blocks = 7 * 32 + 1;
                  }}),
    [](const auto& info) { return info.param.name; });

size_t OpenDescriptors() {
  const auto folder = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(folder), end(folder)));
}

// The daemon's answer carries the view scoreboard's descriptor.
TEST_F(EngineViewTest, ViewThatDoesNotFitLeavesNoDescriptor) {
  StartDaemon({.slab_count = kSlabs, .floor_slabs = 2});
  fs_kv_format format = Format();
  format.blocks = 2 * kSlabBlocks;
  ASSERT_EQ(Register(format), FS_INVALID) << "connects";
  const size_t before = OpenDescriptors();
  ASSERT_EQ(Register(format), FS_INVALID);
  // The daemon, a thread of this process, closes the previous descriptor after
  // it has sent this one.
  EXPECT_TRUE(FakeDaemon::Becomes([&] { return OpenDescriptors() == before; }));
}

TEST_F(EngineViewTest, RefusalOfTheDaemonIsPassedOn) {
  StartDaemon({.fault = Fault::kRefuseView, .slab_count = kSlabs});
  EXPECT_EQ(Register(), FS_REFUSED);
  EXPECT_THAT(KvErrorText(), HasSubstr("hold no such block"));
}

TEST_F(EngineViewTest, DaemonThatMisreportsItsPoolIsNotJoinedForAView) {
  for (const Fault fault : {Fault::kWrongView, Fault::kShrinkable}) {
    StartDaemon({.fault = fault, .slab_count = kSlabs});
    EXPECT_EQ(Register(), FS_NO_DAEMON);
    EXPECT_THAT(KvErrorText(), HasSubstr("an unusable view"));
    EXPECT_FALSE(view_.in_use());
    daemon_.reset();
  }
}

TEST_F(EngineViewTest, IdsBeyond32BitsAreTheFormatsFault) {
  StartDaemon({.slab_count = 3'000});
  fs_kv_format format = Format();
  format.page_bytes = 1;
  EXPECT_EQ(Register(format), FS_INVALID);
  EXPECT_THAT(KvErrorText(), HasSubstr("32 bits"));
  EXPECT_EQ(Register(), FS_OK) << KvErrorText();
}

TEST_F(EngineViewTest, ShortHostMemoryIsNoFaultOfTheFormat) {
  StartDaemon({.slab_count = 1'500});
  fs_kv_format format = Format();
  format.page_bytes = 1;  // 3,000 MiB of block ids, of which each takes a bit
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  rlimit lower = before;
  lower.rlim_cur = pages * static_cast<uint64_t>(getpagesize()) + 256 * kMiB;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &lower), 0);
  const int result = Register(format);
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(result, FS_NO_MEMORY) << KvErrorText();
  EXPECT_FALSE(view_.in_use());
  EXPECT_EQ(Register(), FS_OK) << KvErrorText();
}

TEST_F(EngineViewTest, WithoutADaemonThereIsNoView) {
  EXPECT_EQ(Register(), FS_NO_DAEMON);
  EXPECT_FALSE(view_.in_use());
}

// Tests how views are activated and closed.

TEST_F(EngineViewTest, ActivationNeedsThePluginsReportAndEveryTensor) {
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

TEST_F(EngineViewTest, ActivationThatFindsNoMemoryNamesItsHolders) {
  StartDaemon({.slab_count = kSlabs});
  ASSERT_EQ(Register(), FS_OK);
  AddTensors();
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  fake_.fail = "cuMemMap";
  fake_.fail_with = driver::CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(view_.Activate(driver_), FS_NO_ROOM);
  EXPECT_THAT(KvErrorText(), HasSubstr("out of device memory: of 80 GiB"));
  EXPECT_THAT(KvErrorText(), EndsWith("run fewer engines"));
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

// Tests of an engine that serves with its own block pool.

TEST_F(EngineViewTest, OwnPoolIsNotifiedOfEachLeaseAndEachAskBackOnce) {
  Serve();
  EXPECT_THAT(Poll(), IsEmpty());
  daemon_->Lease(1, 5);
  daemon_->Lease(2, 6);
  EXPECT_THAT(Poll(1), ElementsAre(Pair(2, FS_KV_LEASED)));
  EXPECT_EQ(view_.Wait(driver_, kPatienceMs), 1) << "one change is unreported";
  EXPECT_THAT(Poll(), ElementsAre(Pair(3, FS_KV_LEASED)));
  EXPECT_THAT(Poll(), IsEmpty());
  daemon_->AskBack(1, 5);
  EXPECT_THAT(Poll(), ElementsAre(Pair(2, FS_KV_ASKED_BACK)));
  EXPECT_EQ(view_.ReturnSlab(2), FS_OK);
  EXPECT_EQ(view_.ReturnSlab(2), FS_INVALID);
  EXPECT_THAT(daemon_->views().returned, IsEmpty());
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(Returned(1), ElementsAre(Pair(1, 5)));
}

TEST_F(EngineViewTest, WantIsSentOnceForEachChange) {
  Serve();
  for (const uint32_t want : {3u, 3u, 2u}) EXPECT_EQ(view_.Want(want), FS_OK);
  EXPECT_EQ(LastWanted(), 2u);
  EXPECT_THAT(daemon_->views().wanted, ElementsAre(3, 2));
}

// A request of another thread may take as long as a zero fill.
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
  EXPECT_EQ(view_.Wait(driver_, kPatienceMs), 1) << "until a poll";
  EXPECT_EQ(Poll().size(), 1u);
  EXPECT_EQ(view_.Wait(driver_, 1), 0);
  EXPECT_EQ(view_.Wait(driver_, -1), -FS_INVALID);
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

TEST_F(EngineViewTest, OtherDevicesMayGetItsAddresses) {
  fs_kv_format format = Format();
  format.flags = FS_KV_REGISTERED;
  format.mode = FS_KV_STRICT;
  EXPECT_EQ(Register(format), FS_INVALID) << "they would lose their memory";
  format.mode = FS_KV_VIEW;
  StartDaemon({.slab_count = kSlabs});
  ASSERT_EQ(Register(format), FS_OK) << KvErrorText();
  EXPECT_TRUE(view_.is_registered());
  EXPECT_EQ(daemon_->views().request.flags, abi::kViewIsRegistered);
}

// Tests of a rank: another process runs its view's block pool.

class EngineViewRankTest : public EngineViewTest {
 protected:
  static fs_kv_format RankFormat() {
    fs_kv_format format = Format();
    format.flags = FS_KV_RANK;
    return format;
  }
  void ServeAsRank() {
    StartDaemon({.slab_count = kSlabs});
    ASSERT_EQ(Register(RankFormat()), FS_OK) << KvErrorText();
    AddTensors();
    scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
    ASSERT_EQ(view_.Activate(driver_), FS_OK) << KvErrorText();
  }
};

TEST_F(EngineViewRankTest, ItMapsThePoolAndSaysNothingOfItsSlabs) {
  ServeAsRank();
  EXPECT_EQ(daemon_->views().request.flags, abi::kViewOfGroup);
  EXPECT_TRUE(HasSlab(2));
  daemon_->Lease(1, 5);
  daemon_->AskBack(1, 5);
  view_.Keep(driver_);
  EXPECT_THAT(daemon_->views().wanted, IsEmpty());
  EXPECT_THAT(daemon_->views().returned, IsEmpty());
}

// The rank's own books never see that the other process has returned the slab.
TEST_F(EngineViewRankTest, ItLetsGoOfASlabThatLeavesThePool) {
  ServeAsRank();
  daemon_->Lease(1, 5);
  view_.Keep(driver_);
  daemon_->AskBack(1, 5);
  view_.Keep(driver_);
  EXPECT_TRUE(HasSlab(2)) << "steps may still use it";
  daemon_->Free(1);
  view_.Keep(driver_);
  EXPECT_TRUE(HasSlab(2));
  daemon_->Withdraw(1);
  view_.Keep(driver_);
  EXPECT_TRUE(IsScratch(tensors_[0].base + 2 * kShare));
  EXPECT_TRUE(IsScratch(tensors_[1].base + 2 * kShare));
  EXPECT_TRUE(HasSlab(1));
}

TEST_F(EngineViewRankTest, ItMapsWhatThePoolGrewByAndShowsIt) {
  ServeAsRank();
  ViewScoreboardWriter shown;
  ASSERT_TRUE(shown.Adopt(dup(daemon_->view_scoreboard()), 42,
                          FakeDaemon::kEngine, kSlabs));
  EXPECT_TRUE(shown.IsMapped(2, 1));
  daemon_->Lease(1, 4);
  daemon_->AskBack(1, 4);
  view_.Keep(driver_);
  daemon_->Withdraw(1);
  view_.Keep(driver_);
  daemon_->Regrow(1);
  EXPECT_FALSE(shown.IsMapped(2, 1));
  EXPECT_FALSE(shown.IsMapped(2, 2));
  view_.Keep(driver_);
  EXPECT_TRUE(HasSlab(2));
  EXPECT_TRUE(shown.IsMapped(2, 2));
  shown.Close();
}

TEST_F(EngineViewRankTest, ItHandsOutNoBlocks) {
  ServeAsRank();
  fs_kv_change change;
  uint32_t block;
  EXPECT_EQ(view_.Poll(driver_, &change, 1), -FS_STATE);
  EXPECT_EQ(view_.Want(1), FS_STATE);
  EXPECT_EQ(view_.Allocate(1, &block), FS_STATE);
  EXPECT_EQ(view_.BeginStep(driver_), 0u);
  EXPECT_TRUE(HasSlab(2));
}

TEST_F(EngineViewRankTest, ItIsSuspendedWithItsEngineAndResumed) {
  ServeAsRank();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK) << KvErrorText();
  EXPECT_FALSE(view_.is_active());
  ASSERT_EQ(view_.Resume(driver_), FS_OK) << KvErrorText();
  EXPECT_TRUE(HasSlab(2));
}

TEST_F(EngineViewRankTest, ItTellsWhatAnotherProcessJoinsItBy) {
  fs_kv_rank rank = {};
  EXPECT_EQ(view_.ReadRank(&rank), FS_STATE);
  ServeAsRank();
  ASSERT_EQ(view_.ReadRank(&rank), FS_OK);
  EXPECT_EQ(rank.pid, static_cast<uint32_t>(getpid()));
  EXPECT_NE(std::string(rank.engine_name), "");
}

TEST_F(EngineViewRankTest, OnlyAViewOfTheWholePoolCanBeOne) {
  StartDaemon({.slab_count = kSlabs});
  fs_kv_format format = RankFormat();
  format.mode = FS_KV_GUARDED;
  EXPECT_EQ(Register(format), FS_INVALID);
  format = RankFormat();
  format.flags = FS_KV_RANK | FS_KV_REGISTERED;
  EXPECT_EQ(Register(format), FS_INVALID);
}

}  // namespace

}  // namespace fineserve::shim
