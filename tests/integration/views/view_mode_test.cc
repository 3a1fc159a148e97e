// Accesses that the modes of a view prevent.

#include <gmock/gmock.h>

#include "tests/integration/views/view_site.h"

namespace fineserve::integration {
namespace {

using ::testing::AnyOf;
using ::testing::StartsWith;

// The stray accesses of a guarded engine reach only its own scratch.
TEST_F(ViewTest, GuardedEnginesStrayAccessMeetsItsOwnScratch) {
  const auto daemon = StartPool();
  const auto victim = Start(Packed());
  Want(*victim, 15 * kPackedBlocks);
  ASSERT_TRUE(Gets(*victim, 15));
  Use(*victim, 15 * kPackedBlocks);
  Want(*victim, 0);
  const auto guarded = Start(Packed({"--mode", "guarded"}));
  ASSERT_TRUE(Eventually([&] {
    victim->Ask("step");
    guarded->Ask("idle 20");
    return Stat(*guarded, "leased") == 1;
  }));
  uint32_t own = 0;  // blocks of whichever slab it has
  for (uint32_t v = 1; v <= 16; ++v) {
    const std::string block = std::to_string(v * kPackedBlocks + 100);
    const std::string before = guarded->Ask("peek " + block);
    EXPECT_THAT(before, AnyOf("ok zero", "ok other")) << block;
    if (before == "ok other") continue;  // scratch that was poked
    EXPECT_THAT(guarded->Ask("poke " + block), "ok poked");
    EXPECT_THAT(guarded->Ask("peek " + block), "ok own");
    ++own;
  }
  EXPECT_GT(own, 0u);
  EXPECT_THAT(victim->Ask("verify"), StartsWith("ok"));
}

TEST_F(ViewTest, StrictEnginesStrayAccessEndsIt) {
  const auto daemon = StartPool();
  const auto strict = Start(Packed({"--mode", "strict"}));
  ASSERT_TRUE(Gets(*strict, 1));
  Use(*strict, 100);
  uint32_t faults = 0;
  // At least one of the two slabs is not this engine's.
  for (const uint32_t v : {2u, 9u}) {
    if (!strict->alive()) break;
    const std::string answer =
        strict->Ask("peek " + std::to_string(v * (kPackedBlocks + 1) + 100));
    faults += answer.find("ILLEGAL_ADDRESS") != std::string::npos;
  }
  EXPECT_EQ(faults, 1u);
  EXPECT_EQ(strict->Wait(), 3);
  EXPECT_TRUE(EventuallyFree(16));
}

}  // namespace
}  // namespace fineserve::integration
