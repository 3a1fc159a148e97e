#include "daemon/fineserved/admission/learnt.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::admission {
namespace {

Learnt::Engine Slow() {
  Learnt::Engine engine{"m", {1234.56789012345, 1.0 / 3, 8, true}, {}};
  for (int i = 0; i < 9; ++i) {
    engine.corrections.prefill.Observe(3100, 1700);
    engine.corrections.decode.Observe(900, 1700);
  }
  return engine;
}

TEST(LearntTest, IsReadAsItWasWritten) {
  const Learnt::Engine slow = Slow();
  const Learnt read =
      ReadLearnt(TextOf({{{"a", slow}, {"b", {"n", {}, {}}}}, {{"m", 41.5}}}));
  ASSERT_EQ(read.engines.count("a"), 1u);
  const Learnt::Engine& a = read.engines.at("a");
  EXPECT_EQ(a.model, "m");
  EXPECT_TRUE(a.profile == slow.profile);
  EXPECT_EQ(a.corrections.prefill.kappa(), slow.corrections.prefill.kappa());
  EXPECT_EQ(a.corrections.decode.kappa(), slow.corrections.decode.kappa());
  EXPECT_EQ(a.corrections.prefill.sums().observed, 9u);
  EXPECT_EQ(read.engines.at("b").corrections.decode.kappa(), 1);
  EXPECT_EQ(read.expected_output.at("m"), 41.5);
}

TEST(LearntTest, LinesThatNoServiceWritesAreLeftOut) {
  for (const char* line : {"", "engine", "engine\ta\tm", "model\tm\t0",
                           "model\tm\tnan", "model\tm\t1e300", "model\tm\t-1",
                           "engine\ta\tm\t1\t1\t1\t0\t0\t1\t1\t1\t1\t1",
                           "engine\ta\tm\t1\t1\t1\t0\tinf\t1\t1\t1\t1\t1",
                           "engine\ta\tm\t1\t1\t-1\t0\t1\t1\t1\t1\t1\t1",
                           "engine\ta\tm\t1\t1\t1\t0\t1\t1\t-1\t1\t1\t1"}) {
    const Learnt read = ReadLearnt(line);
    EXPECT_TRUE(read.engines.empty() && read.expected_output.empty()) << line;
  }
}

TEST(LearntTest, KappaOfAnyFileIsWithinItsBounds) {
  const Learnt read =
      ReadLearnt("engine\ta\tm\t1\t1\t1\t0\t1e9\t1\t1\t1\t1e9\t1");
  EXPECT_EQ(read.engines.at("a").corrections.prefill.kappa(), 64);
  EXPECT_EQ(read.engines.at("a").corrections.decode.kappa(), 0.25);
}

}  // namespace
}  // namespace fineserve::admission
