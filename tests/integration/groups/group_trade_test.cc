// Two engines on the same two GPUs, in opposite order, and a plain one on the
// first: they go on trading slabs, some seconds in each run of the tests;
// FINESERVE_TRADE_SECONDS sets another time.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/integration/groups/group_site.h"
#include "tests/process/from_environment.h"

namespace fineserve::integration {
namespace {

class GroupTradeTest : public GroupSite {};

TEST_F(GroupTradeTest, EnginesOnTheSameGpusNeverWaitForEachOther) {
  const auto first = StartGroup("0,1");
  const auto second = StartGroup("1,0");
  StartPlain();
  // Each part of the time is judged by itself: a deadlock may come late.
  const int seconds = process::FromEnvironment("FINESERVE_TRADE_SECONDS", 9);
  const int parts = std::clamp(seconds / 3, 1, 10);
  for (int part = 0; part < parts; ++part) {
    uint64_t returned[kGpus];
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      returned[gpu] = TableOf(gpu).counters.slabs_returned;
    }
    const int64_t gained[] = {first->Stat("gained"), second->Stat("gained")};
    std::this_thread::sleep_for(std::chrono::milliseconds(1000) * seconds /
                                parts);
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const uint64_t now = TableOf(gpu).counters.slabs_returned;
      EXPECT_GT(now, returned[gpu]) << "GPU " << gpu << ", part " << part;
      printf("GPU %d: %.0f slabs returned a minute\n", gpu,
             60.0 * static_cast<double>(now - returned[gpu]) * parts / seconds);
    }
    EXPECT_GT(first->Stat("gained"), gained[0]) << "part " << part;
    EXPECT_GT(second->Stat("gained"), gained[1]) << "part " << part;
    EXPECT_TRUE(plain_->alive()) << plain_->ReadAll() << plain_->Stderr();
    ASSERT_FALSE(HasFailure());
  }
  for (GroupEngine* engine : {first.get(), second.get()}) {
    printf("%s\n", engine->parent().Ask("stats").c_str());
    EXPECT_EQ(engine->parent().Ask("exit"), "ok exit");
    EXPECT_EQ(engine->parent().Wait(), 0) << engine->parent().Stderr();
  }
}

}  // namespace
}  // namespace fineserve::integration
