#include "bench/serving/clients.h"

#include <gtest/gtest.h>

namespace fineserve::bench {
namespace {

TEST(HostCpuTest, BusyPartIsThatOfTheTimeBetween) {
  EXPECT_DOUBLE_EQ(BusyPart({100, 1000}, {130, 1200}), 0.15);
  EXPECT_EQ(BusyPart({100, 1000}, {100, 1000}), 0);
}

TEST(HostCpuTest, TheHostHasDoneSomething) {
  const HostCpu now = HostCpu::Now();
  EXPECT_GT(now.busy, 0);
  EXPECT_GE(now.all, now.busy);
}

}  // namespace
}  // namespace fineserve::bench
