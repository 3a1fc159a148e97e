#include "daemon/proxy/choice/model_on_gpu.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

ModelOnGpu With(bool lets_in, bool serves) {
  ModelOnGpu gpu;
  gpu.Add(lets_in, serves, 1);
  return gpu;
}

TEST(ModelOnGpuTest, PlanHealthDaemonAndPresenceCountInThisOrder) {
  EXPECT_EQ(With(true, true).Trouble(true, false), 0);
  EXPECT_LT(With(true, true).Trouble(true, /*is_away=*/true),
            With(true, true).Trouble(false, false));
  EXPECT_LT(With(true, true).Trouble(false, true),
            With(true, false).Trouble(true, false));
  EXPECT_LT(With(true, false).Trouble(false, true),
            With(false, true).Trouble(true, false));
}

TEST(ModelOnGpuTest, EngineThatIsNotLetInDoesNotAnswerForOneThatIs) {
  ModelOnGpu gpu = With(/*lets_in=*/false, /*serves=*/true);
  gpu.Add(/*lets_in=*/true, /*serves=*/false, 2);
  EXPECT_EQ(gpu.Trouble(true, false), With(true, false).Trouble(true, false));
  gpu.Add(true, true, 3);
  EXPECT_EQ(gpu.Trouble(true, false), 0);
  EXPECT_EQ(gpu.target_rate(), 6);
}

TEST(ModelOnGpuTest, HasNoneUntilOneIsAdded) {
  EXPECT_FALSE(ModelOnGpu().any());
  EXPECT_TRUE(With(false, false).any());
}

}  // namespace
}  // namespace fineserve::proxy
