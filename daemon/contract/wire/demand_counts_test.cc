#include "daemon/contract/wire/demand_counts.h"

#include <gtest/gtest.h>

#include "daemon/contract/wire/message.h"

namespace fineserve::wire {
namespace {

constexpr DemandCounts kSome = {1, 2, 3, 4, 5, 6};

TEST(DemandCountsTest, GoOnOnlyIfNoneIsLess) {
  EXPECT_TRUE(kSome.GoesOnFrom(kSome));
  EXPECT_TRUE(kSome.GoesOnFrom({}));
  EXPECT_FALSE(kSome.GoesOnFrom({0, 0, 0, 0, 0, 7}));
  EXPECT_FALSE(kSome.GoesOnFrom({2, 0, 0, 0, 0, 0}));
}

TEST(DemandCountsTest, AddUpWhatCameSince) {
  DemandCounts total = {UINT64_MAX - 1, 10, 0, 0, 0, 0};
  total += kSome.Since({0, 2, 1, 0, 0, 1});
  EXPECT_EQ(total, (DemandCounts{UINT64_MAX, 10, 2, 4, 5, 5}));
  total += kSome;
  EXPECT_EQ(total.arrived, UINT64_MAX) << "it stops there";
}

TEST(DemandCountsTest, AreTheSameOnTheWire) {
  const auto demand = DemandOf("m", kSome);
  EXPECT_EQ(demand->model, "m");
  EXPECT_EQ(demand->late, 6u);
  EXPECT_EQ(CountsOf(*demand), kSome);
}

}  // namespace
}  // namespace fineserve::wire
