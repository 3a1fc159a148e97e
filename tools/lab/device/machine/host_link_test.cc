#include "tools/lab/device/machine/host_link.h"

#include <gtest/gtest.h>

#include <memory>

#include "tools/lab/device/machine/test_machine.h"

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
using Way = HostLink::Way;

TEST(HostLinkTest, CopiesOfAllProcessesFollowEachOtherEachWayByItself) {
  TestMachine machine;
  const auto link = HostLink::Open(machine.Folder(), 0, 1000);
  const auto of_another = HostLink::Open(machine.Folder(), 0, 1000);
  const auto of_another_device = HostLink::Open(machine.Folder(), 1, 1000);
  const uint64_t end = link->Book(Way::kToDevice, 100'000);
  EXPECT_EQ(of_another->Book(Way::kToDevice, 2000), end + 2 * kSecondNs);
  EXPECT_EQ(link->Book(Way::kToDevice, 500), end + 5 * kSecondNs / 2);
  EXPECT_LT(link->Book(Way::kToHost, 1000), end);
  EXPECT_LT(of_another_device->Book(Way::kToDevice, 1000), end);
  HostLink::WaitUntil(0);
}

}  // namespace
}  // namespace fineserve::emucuda
