#include "tools/fsctl/apply/awaited_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

apply::EngineState Engine(const std::string& state, uint64_t starts,
                          const std::string& last_end = "") {
  return {"a", state, 1, starts, 0, last_end, 0};
}

TEST(AwaitedEnginesTest, RestartedEngineIsThereWhenItServesAgain) {
  AwaitedEngines engines;
  engines.Serves("a", 4);
  EXPECT_THAT(engines.Observe({Engine("serving", 4)}), IsEmpty());
  EXPECT_THAT(engines.Observe({Engine("draining", 4)}),
              ElementsAre("a: draining"));
  EXPECT_THAT(engines.Observe({Engine("draining", 4)}), IsEmpty());
  EXPECT_THAT(engines.Observe({Engine("starting", 5)}),
              ElementsAre("a: starting"));
  EXPECT_FALSE(engines.done());
  EXPECT_THAT(engines.Pending(), ElementsAre("a"));
  EXPECT_THAT(engines.Observe({Engine("serving", 5)}),
              ElementsAre("a: serving"));
  EXPECT_TRUE(engines.done());
  EXPECT_THAT(engines.troubles(), IsEmpty());
}

TEST(AwaitedEnginesTest, RestartBetweenTwoLooksIsNoticed) {
  AwaitedEngines engines;
  engines.Serves("a", 4);
  engines.Observe({Engine("serving", 4)});
  EXPECT_THAT(engines.Observe({Engine("serving", 5)}), IsEmpty());
  EXPECT_TRUE(engines.done());
}

TEST(AwaitedEnginesTest, EngineThatLeftIsThereWhenItIsGone) {
  AwaitedEngines engines;
  engines.Ends("a");
  EXPECT_THAT(engines.Observe({Engine("draining", 1)}),
              ElementsAre("a: draining"));
  EXPECT_FALSE(engines.done());
  EXPECT_THAT(engines.Observe({}), ElementsAre("a: ended"));
  EXPECT_TRUE(engines.done());
  EXPECT_THAT(engines.troubles(), IsEmpty());
}

TEST(AwaitedEnginesTest, EngineThatAnOperatorStoppedHasEnded) {
  AwaitedEngines engines;
  engines.Ends("a");
  engines.Observe({Engine("stopping", 1)});
  EXPECT_FALSE(engines.done());
  EXPECT_THAT(engines.Observe({Engine("stopped", 1)}),
              ElementsAre("a: stopped"));
  EXPECT_TRUE(engines.done());
}

TEST(AwaitedEnginesTest, EngineThatCannotServeIsNotAwaitedForEver) {
  AwaitedEngines engines;
  engines.Serves("a", 0);
  for (uint64_t starts = 1; starts <= 4; ++starts) {
    EXPECT_FALSE(engines.done());
    engines.Observe({Engine("down", starts, "ended with code 3")});
  }
  EXPECT_TRUE(engines.done());
  EXPECT_THAT(engines.troubles(),
              ElementsAre(HasSubstr("a ends again and again (ended with code "
                                    "3)")));
  engines.Serves("a", 0);
  engines.Observe({Engine("given up", 1)});
  EXPECT_TRUE(engines.done());
}

TEST(AwaitedEnginesTest, EngineThatThePlanDoesNotWantIsNotAwaited) {
  AwaitedEngines engines;
  engines.Serves("a", 0);
  engines.Observe({Engine("off", 0)});
  EXPECT_TRUE(engines.done());
  EXPECT_THAT(engines.troubles(), IsEmpty());
}

}  // namespace
}  // namespace fineserve::fsctl
