#include "daemon/fineserved/backing/measured_backing.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "daemon/fineserved/backing/backing_fixture.h"
#include "daemon/fineserved/backing/sim_backing.h"

namespace fineserve::backing {
namespace {

using metrics::DriverCall;
using slab::SlabId;

class MeasuredBackingTest : public ::testing::Test {
 protected:
  uint64_t Calls(DriverCall call) const {
    return measured_.Figures()[static_cast<size_t>(call)].times.count();
  }
  uint64_t Errors(DriverCall call) const {
    return measured_.Figures()[static_cast<size_t>(call)].errors;
  }

  SimBacking* const sim_ =
      new SimBacking(*SimBacking::Create(kGeometry, /*present=*/4));
  MeasuredBacking measured_{std::unique_ptr<Backing>(sim_)};
};

TEST_F(MeasuredBackingTest, EachCallIsCarriedOutAndCountedByItsKind) {
  EXPECT_TRUE(measured_.CreateSlab(SlabId{5}).ok());
  measured_.DestroySlab(SlabId{5});
  EXPECT_TRUE(measured_.Export(0).ok());
  EXPECT_TRUE(measured_.Export(1).ok());
  EXPECT_TRUE(measured_.StartZero(SlabId{1}).ok());
  EXPECT_EQ(measured_.TakeZeroed()->size(), 1u);
  EXPECT_TRUE(measured_.DevicePids({}).ok());
  EXPECT_EQ(measured_.geometry().slab_count, kGeometry.slab_count);
  EXPECT_EQ(Calls(DriverCall::kExport), 2u);
  for (const DriverCall call :
       {DriverCall::kCreate, DriverCall::kDestroy, DriverCall::kZero,
        DriverCall::kPoll, DriverCall::kList}) {
    EXPECT_EQ(Calls(call), 1u) << metrics::kDriverCalls[static_cast<int>(call)];
    EXPECT_EQ(Errors(call), 0u);
  }
}

TEST_F(MeasuredBackingTest, ErrorsAreCountedAndPassedOn) {
  sim_->set_device_full(true);
  sim_->set_zeroing_fails(true);
  sim_->set_device_pids(absl::UnavailableError("no NVML"));
  EXPECT_FALSE(measured_.CreateSlab(SlabId{5}).ok());
  EXPECT_FALSE(measured_.StartZero(SlabId{1}).ok());
  EXPECT_EQ(measured_.DevicePids({}).status().message(), "no NVML");
  for (const DriverCall call :
       {DriverCall::kCreate, DriverCall::kZero, DriverCall::kList}) {
    EXPECT_EQ(Errors(call), 1u);
    EXPECT_EQ(Calls(call), 1u);
  }
}

}  // namespace
}  // namespace fineserve::backing
