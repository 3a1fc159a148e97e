// Two engines on the same two GPUs, in opposite orders, and a plain engine on
// the first GPU keep trading slabs, for some seconds in each run of the tests;
// FINESERVE_TRADE_SECONDS sets another time.

#include <gtest/gtest.h>

#include <chrono>

#include "tests/integration/ranks/group_site.h"
#include "tools/lab/process/from_environment.h"

namespace fineserve::integration {
namespace {

class GroupTradeTest : public GroupSite {};

TEST_F(GroupTradeTest, EnginesOnTheSameGpusNeverWaitForEachOther) {
  const auto first = StartGroup("0,1");
  const auto second = StartGroup("1,0");
  StartPlain();
  const std::chrono::seconds time(
      process::FromEnvironment("FINESERVE_TRADE_SECONDS", 9));
  const auto began = std::chrono::steady_clock::now();
  const uint64_t returned[] = {Returned(0), Returned(1)};
  std::chrono::duration<double> passed{};
  while (passed < time) {  // a deadlock may come late
    ASSERT_TRUE(Trade({first.get(), second.get()}));
    ASSERT_TRUE(plain_->alive()) << plain_->ReadAll() << plain_->Stderr();
    passed = std::chrono::steady_clock::now() - began;
  }
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    printf("GPU %d: %.0f slabs returned a minute\n", gpu,
           60.0 * static_cast<double>(Returned(gpu) - returned[gpu]) /
               passed.count());
  }
  for (GroupEngine* engine : {first.get(), second.get()}) {
    printf("%s\n", engine->parent().Ask("stats").c_str());
    EXPECT_EQ(engine->parent().Ask("exit"), "ok exit");
    EXPECT_EQ(engine->parent().Wait(), 0) << engine->parent().Stderr();
  }
}

}  // namespace
}  // namespace fineserve::integration
