// Tests device memory that is not KV, when the driver has none left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shim/redirect/redirector_fixture.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUresult;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kBytes = 8 * kMiB;

class RoomTest : public RedirectorFixture {
 protected:
  // Makes an allocation as the program does; `kv`: inside a KV scope.
  CUresult Allocate(bool kv = false) {
    driver::CUdeviceptr address = 0;
    const auto original = [&](const driver::EntryPoints&) {
      ++tries_;
      if (tries_ <= failures_) return failure_;
      address = 77;
      return CUDA_SUCCESS;
    };
    AllocationCall call{abi::Hook::kMemAlloc, kBytes, nullptr,
                        Original(original)};
    call.in_scope = kv;
    return redirector_.Allocate(driver_, call, &address);
  }
  void StartDaemonThatAnswers(const std::vector<uint64_t>& coming) {
    FakeDaemon::Options options;
    options.room = coming;
    StartDaemon(options);
  }

  int tries_ = 0;
  int failures_ = 0;  // of the driver, before it has memory
  CUresult failure_ = CUDA_ERROR_OUT_OF_MEMORY;
};

TEST_F(RoomTest, AllocationThatFindsMemoryDoesNotAsk) {
  StartDaemonThatAnswers({kBytes});
  EXPECT_EQ(Allocate(), CUDA_SUCCESS);
  EXPECT_THAT(daemon_->rooms_asked(), IsEmpty());
}

TEST_F(RoomTest, IsTriedAgainWhileThePoolGivesMemoryUp) {
  StartDaemonThatAnswers({kBytes, kBytes, kBytes});
  failures_ = 3;
  EXPECT_EQ(Allocate(), CUDA_SUCCESS);
  EXPECT_EQ(tries_, 4);
  // The last request, of 0 bytes, ends the wait.
  EXPECT_THAT(daemon_->rooms_asked(), ElementsAre(kBytes, kBytes, kBytes, 0u));
  EXPECT_EQ(LastDecision().verdict, abi::Verdict::kPassThrough);
  EXPECT_EQ(LastDecision().address, 77u);
  EXPECT_EQ(Scoreboard().room_waits, 1u);
}

TEST_F(RoomTest, FailsAtOnceWhenNothingCanCome) {
  StartDaemonThatAnswers({0});
  failures_ = 100;
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(tries_, 1);
  EXPECT_THAT(daemon_->rooms_asked(), ElementsAre(kBytes));
  EXPECT_EQ(Scoreboard().room_waits, 0u);
}

TEST_F(RoomTest, FailsWhenNothingMoreComes) {
  StartDaemonThatAnswers({kBytes, kBytes, 0});
  failures_ = 100;
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(tries_, 3);
}

// The message does not suggest a smaller pool, because the pool would shrink by
// itself.
TEST_F(RoomTest, SaysWhyThePoolGaveNothingFurther) {
  StartDaemonThatAnswers({0});
  failures_ = 1;
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  const std::string said = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_THAT(said, HasSubstr("lower their longest requests"));
}

TEST_F(RoomTest, FailsWhenItHasWaitedLongEnough) {
  StartDaemonThatAnswers(std::vector<uint64_t>(1'000'000, kBytes));
  redirector_.set_room_waits({.starting_ms = 50, .serving_ms = 1'000'000});
  failures_ = INT_MAX;
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_GT(tries_, 1);
}

TEST_F(RoomTest, SaysOnceWhatAStartWaitsFor) {
  StartDaemonThatAnswers({kBytes, kBytes, kBytes});
  redirector_.set_room_waits({.silent_ms = 0});
  failures_ = 3;
  EXPECT_EQ(Allocate(), CUDA_SUCCESS);
  const std::string said = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_THAT(said, HasSubstr("waiting for 8 MiB of device memory"));
  EXPECT_EQ(said.find("waiting"), said.rfind("waiting")) << said;
}

// A serving engine may itself hold the memory that the others wait for.
TEST_F(RoomTest, EngineThatServesWaitsForAShorterTime) {
  StartDaemonThatAnswers(std::vector<uint64_t>(1'000'000, kBytes));
  ASSERT_EQ(Allocate(/*kv=*/true), CUDA_SUCCESS);
  ASSERT_EQ(tries_, 0);
  redirector_.set_room_waits({.starting_ms = 1'000'000, .serving_ms = 50});
  failures_ = INT_MAX;
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_GT(tries_, 1);
}

TEST_F(RoomTest, OtherErrorIsNotTriedAgain) {
  StartDaemonThatAnswers({kBytes});
  failures_ = 1;
  failure_ = driver::CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(Allocate(), driver::CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(daemon_->rooms_asked(), IsEmpty());
}

// A daemon that does not know this request would close the connection.
TEST_F(RoomTest, PoolOfAFixedSizeIsNotAsked) {
  StartDaemon();
  failures_ = 1;
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(daemon_->rooms_asked(), IsEmpty());
  EXPECT_EQ(daemon_->connections(), 1);
}

TEST_F(RoomTest, WithoutADaemonItFailsAsTheDriverSays) {
  failures_ = 1;
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(tries_, 1);
}

TEST_F(RoomTest, DaemonThatDiesInBetweenEndsTheWait) {
  StartDaemonThatAnswers(std::vector<uint64_t>(1'000'000, kBytes));
  redirector_.set_room_waits({.starting_ms = 1'000'000, .restart_ms = 50});
  failures_ = INT_MAX;
  std::thread killer([this] {
    EXPECT_TRUE(FakeDaemon::Becomes(
        [this] { return daemon_->rooms_asked().size() > 2; }));
    daemon_.reset();
  });
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  killer.join();
}

TEST_F(RoomTest, NextDaemonIsAskedWhenTheFormerOneHasDied) {
  StartDaemonThatAnswers(std::vector<uint64_t>(1'000'000, kBytes));
  redirector_.set_room_waits({.starting_ms = 60'000, .restart_ms = 60'000});
  failures_ = INT_MAX;
  std::thread killer([this] {
    EXPECT_TRUE(FakeDaemon::Becomes(
        [this] { return daemon_->rooms_asked().size() > 2; }));
    daemon_.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    FakeDaemon::Options next;
    next.room = {kBytes, kBytes, 0};
    StartDaemon(next);
  });
  EXPECT_EQ(Allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  killer.join();
  EXPECT_THAT(daemon_->rooms_asked(), ElementsAre(kBytes, kBytes, kBytes, 0u))
      << "and then it said that nothing comes";
}

// The engine allocates its KV after its weights, which may have taken all the
// memory that became free.
class RoomForAViewTest : public RedirectorViewTest {
 protected:
  static constexpr uint64_t kScratch = 4 * kMiB;

  void SetUp() override { RedirectorFixture::SetUp(); }
  void RegisterWith(const std::vector<uint64_t>& coming) {
    FakeDaemon::Options options;
    options.slab_count = 6;
    options.room = coming;
    StartDaemon(options);
    Register();
    fake_.fail = "cuMemCreate";
    fake_.fail_with = CUDA_ERROR_OUT_OF_MEMORY;
    fake_.fail_times = INT_MAX;
  }
  CUresult AllocateTensor() {
    driver::CUdeviceptr address = 0;
    return Allocate(TensorBytes(), /*in_scope=*/true, &address);
  }
};

TEST_F(RoomForAViewTest, TensorWaitsForRoomForItsScratch) {
  RegisterWith({0, kScratch, kScratch});
  AllocateTensor();
  const auto tries = std::ranges::count(fake_.log, "cuMemCreate");
  EXPECT_EQ(LastDecision().reason, abi::Reason::kDriverError);
  EXPECT_THAT(daemon_->rooms_asked(), ElementsAre(kScratch));

  fake_.fail_after = 0;
  fake_.fail_times = 2 * static_cast<int>(tries);
  EXPECT_EQ(AllocateTensor(), CUDA_SUCCESS);
  EXPECT_EQ(LastDecision().reason, abi::Reason::kView);
  EXPECT_THAT(daemon_->rooms_asked(),
              ElementsAre(kScratch, kScratch, kScratch, 0u));
}

TEST_F(RoomForAViewTest, ViewIsTakenUpAgainWhenRoomHasCome) {
  RegisterWith({kScratch});
  fake_.fail.clear();
  ASSERT_EQ(AllocateTensor(), CUDA_SUCCESS);
  ASSERT_EQ(AllocateTensor(), CUDA_SUCCESS);
  redirector_.scoreboard().RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  ASSERT_EQ(redirector_.view().Activate(driver_), FS_OK) << KvErrorText();
  ASSERT_EQ(redirector_.view().Suspend(driver_), FS_OK) << KvErrorText();
  ASSERT_THAT(daemon_->rooms_asked(), IsEmpty());
  fake_.fail = "cuMemCreate";
  fake_.fail_after = 0;
  fake_.fail_times = 1 << 20;
  EXPECT_EQ(redirector_.ResumeView(driver_), FS_NO_ROOM);
  EXPECT_THAT(daemon_->rooms_asked(), ElementsAre(kScratch, kScratch, 0u));
  fake_.fail.clear();
  EXPECT_EQ(redirector_.ResumeView(driver_), FS_OK) << KvErrorText();
}

}  // namespace
}  // namespace fineserve::shim
