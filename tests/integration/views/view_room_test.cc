// Engines with views on a device that is nearly full.

#include <gmock/gmock.h>

#include "tests/integration/views/view_site.h"

namespace fineserve::integration {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// The pool leaves 16 MiB of the device. This is less than the 64 MiB that a
// view maps at a time if there is room.
TEST_F(ViewTest, StartBesideAPoolThatLeavesLittleTakesLittle) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "a device of a chosen size";
  Set("EMUCUDA_MEMORY", "144MiB");
  const auto daemon = StartPool();
  for (const char* mode : {"view", "guarded"}) {
    SCOPED_TRACE(mode);
    const auto packed = Start(Packed({"--mode", mode}));
    EXPECT_GE(FreeBytes(*packed), 8 * kMiB);
    const auto layers = Start(Layers({"--mode", mode}));
    Use(*packed, kPackedBlocks);
    Use(*layers, kLayersBlocks);
    ExpectEnd(*packed);
    ExpectEnd(*layers);
  }
}

}  // namespace
}  // namespace fineserve::integration
