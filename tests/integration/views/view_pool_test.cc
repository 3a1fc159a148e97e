// A pool that changes its size while engines have views of it.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "tests/integration/views/view_site.h"

namespace fineserve::integration {
namespace {

using abi::SlabState;
using ::testing::StartsWith;

// The pool grows and shrinks while engines serve. A new slab is mapped with its
// first lease; a withdrawn slab is unmapped by all engines, so that the device
// gets its memory back.
TEST_F(ViewTest, PoolGrowsAndShrinksUnderEnginesThatServe) {
  SetPool(64);
  const auto daemon = StartFromFile();
  const auto packed = Start(Packed());
  const auto layers = Start(Layers({"--mode", "guarded"}));
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 7)) << "8 slabs, of which one is a floor";
  Use(*packed, kPackedBlocks);
  const uint64_t free_of_small = FreeBytes(*packed);
  for (int round = 0; round < 2; ++round) {
    SetPool(128);
    daemon->Signal(SIGHUP);
    ASSERT_TRUE(Gets(*packed, 15));
    EXPECT_GT(Stat(*packed, "calls_serving"), 0u);
    EXPECT_EQ(FreeBytes(*packed), free_of_small - (uint64_t{64} << 20));
    Use(*packed, 10 * kPackedBlocks, "scan");
    packed->Ask("free " + std::to_string(10 * kPackedBlocks));
    // The daemon asks back slabs that the scoreboard shows as unused, and an
    // ask-back is final.
    usleep(10'000);
    packed->Ask("step");
    SetPool(64);
    daemon->Signal(SIGHUP);
    ASSERT_TRUE(Eventually([&] {
      packed->Ask("step");
      layers->Ask("step");
      return SlabsIn(SlabState::kAbsent) == 8 &&
             FreeBytes(*packed) == free_of_small;
    })) << FreeBytes(*packed)
        << " bytes are free, " << free_of_small << " were";
    EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
  }
  packed->Ask("step");
  Use(*layers, 10);
  ExpectEnd(*packed);
  ExpectEnd(*layers);
  EXPECT_TRUE(EventuallyFree(8));
}

TEST_F(ViewTest, SizeThatWasRefusedIsTriedAgainAtTheNextReload) {
  SetPool(64);
  const auto daemon = StartFromFile();
  const auto engine =
      Start(Packed({"--floor", std::to_string(4 * kPackedBlocks)}));
  SetPool(16);
  daemon->Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] {
    return daemon->Stderr().find("cannot resize the pool") != std::string::npos;
  })) << daemon->Stderr();
  EXPECT_EQ(SlabsIn(SlabState::kAbsent), 8u) << "those above 64 MiB";
  ExpectEnd(*engine);
  // Otherwise the reload may find that the engine's floor is still kept.
  ASSERT_TRUE(EventuallyFree(8));
  daemon->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return SlabsIn(SlabState::kAbsent) == 14; }));
}

}  // namespace
}  // namespace fineserve::integration
