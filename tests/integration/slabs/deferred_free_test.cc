// KV that is freed in stream order, behind work that is still running.
#include <gmock/gmock.h>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class DeferredFree : public Site {
 protected:
  // Starts an engine with four slabs, and lets it free them behind pending
  // work.
  std::unique_ptr<Process> StartAndFreeBehindWork() {
    auto engine = StartEngine("8MiB", {"--allocator", "async"});
    EXPECT_THAT(engine->Ask("stall"), HasSubstr("ok stalled"));
    EXPECT_THAT(engine->Ask("free"), HasSubstr("ok freed"));
    return engine;
  }
};

TEST_F(DeferredFree, SlabsStayLeasedUntilTheStreamHasPassed) {
  const auto daemon = StartDaemon();
  const auto engine = StartAndFreeBehindWork();
  // At each of these calls, the shim checks what was freed.
  for (const char* look : {"ask stream", "ask event", "checkfree"}) {
    EXPECT_THAT(engine->Ask(look), HasSubstr("ok "));
    EXPECT_EQ(SlabsOf(engine->pid()), 4u) << look;
  }
  // Asks for the whole pool: no engine may get memory that a kernel may still
  // write.
  const auto greedy = LaunchEngine("32MiB");
  EXPECT_THAT(greedy->ReadLine(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(SlabsOf(engine->pid()), 4u);
  engine->Ask("resume");
}

TEST_F(DeferredFree, LookAtWhatWasFreedEndsNoCapture) {
  const auto daemon = StartDaemon();
  const auto engine = StartAndFreeBehindWork();
  EXPECT_THAT(engine->Ask("capture"), HasSubstr("ok captured"));
  EXPECT_EQ(SlabsOf(engine->pid()), 4u);
  engine->Ask("resume");
}

TEST_F(DeferredFree, AllocationWaitsForWhatItsOwnProcessFreed) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("24MiB", {"--allocator", "async"});
  engine->Ask("stall");
  EXPECT_THAT(engine->Ask("free"), HasSubstr("ok freed"));
  EXPECT_EQ(SlabsOf(engine->pid()), 12u);
  engine->Ask("resume");
  EXPECT_THAT(engine->Ask("alloc"), HasSubstr("ok allocated"));
  EXPECT_THAT(engine->Ask("checkzero"), HasSubstr("ok zero"));
  EXPECT_EQ(SlabsOf(engine->pid()), 12u);
}

// The engine neither allocates nor frees again: it only waits, or asks.
class WaitAfterFree : public DeferredFree,
                      public ::testing::WithParamInterface<const char*> {};

TEST_P(WaitAfterFree, GivesTheSlabsBack) {
  const auto daemon = StartDaemon();
  const auto engine = StartAndFreeBehindWork();
  EXPECT_EQ(SlabsIn(abi::SlabState::kFree), kSlabs - 4);
  engine->Ask("resume");
  EXPECT_TRUE(Eventually([&] {
    EXPECT_THAT(engine->Ask(GetParam()), HasSubstr("ok "));
    return SlabsIn(abi::SlabState::kFree) == kSlabs;
  }));
}

INSTANTIATE_TEST_SUITE_P(By, WaitAfterFree,
                         ::testing::Values("wait stream", "wait context",
                                           "wait event", "ask stream",
                                           "ask event"),
                         [](const auto& p) {
                           std::string name = p.param;
                           name[name.find(' ')] = '_';
                           return name;
                         });

}  // namespace
}  // namespace fineserve::integration
