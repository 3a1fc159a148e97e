#include "daemon/fineserved/eviction/replica_look.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>

namespace fineserve::server {
namespace {

TEST(ReplicaLookTest, LooksWhenAskedAndAgainWhenThatIsOld) {
  ManualClock clock;
  clock.AdvanceNs(1);
  std::atomic<uint64_t> looks{0};
  ReplicaLook look(
      [&] {
        ReplicaLook::Sights sights(1);
        sights[0].frozen_bytes = ++looks;
        return sights;
      },
      &clock);
  const auto await = [&] {
    pollfd ready = {look.descriptor(), POLLIN, 0};
    return poll(&ready, 1, 10'000) == 1;
  };
  EXPECT_EQ(looks, 0u) << "it costs nothing while none asks";
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_FALSE(look.Recent());
    ASSERT_TRUE(await());
    for (int again = 0; again < 2; ++again) {
      const auto seen = look.Recent();
      ASSERT_TRUE(seen);
      EXPECT_EQ((*seen)[0].frozen_bytes, round);
    }
    clock.AdvanceNs(ReplicaLook::kFreshNs + 1);
  }
}

}  // namespace
}  // namespace fineserve::server
