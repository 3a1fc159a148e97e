#include "daemon/scheduling/local/policy/make_policy.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::sched {
namespace {

TEST(MakePolicyTest, UnknownNameNamesThoseThereAre) {
  const auto policy = MakePolicy("lifo", 0);
  EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(policy.status().message()).find("moore-hodgson"),
            std::string::npos);
}

}  // namespace
}  // namespace fineserve::sched
