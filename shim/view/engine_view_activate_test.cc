// Tests how views are activated and closed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::Ge;
using testing::HasSubstr;
using testing::Lt;
using Fault = FakeDaemon::Fault;

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
  EXPECT_EQ(view_.Activate(driver_), FS_DRIVER);
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

}  // namespace
}  // namespace fineserve::shim
