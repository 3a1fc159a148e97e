#include "daemon/scheduling/lead/lead_contest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/message.h"
#include "daemon/scheduling/lead/lead_fixture.h"
#include "daemon/scheduling/lead/leader.h"
#include "daemon/scheduling/lead/plan_store.h"

namespace fineserve::lead {
namespace {

using ::testing::HasSubstr;

class LeadContestTest : public testing::Test {
 protected:
  LeadContestTest() {
    char path[] = "/tmp/lead_contest_test.XXXXXX";
    folder_ = mkdtemp(path);
  }
  ~LeadContestTest() override { std::filesystem::remove_all(folder_); }

  LeadContest Of(const std::string& gpu, const std::string& fleet) const {
    return LeadContest(folder_, {0, gpu, fleet});
  }
  static bool IsRefused(const absl::StatusOr<LeadLock>& lead) {
    return absl::IsFailedPrecondition(lead.status());
  }

  std::string folder_;
};

TEST_F(LeadContestTest, AnotherDaemonOfTheFleetWaitsWithoutTrouble) {
  const auto first = Of("GPU-a", "/chat.toml").Try(0);
  ASSERT_TRUE(first.ok()) << first.status();
  LeadContest second = Of("GPU-b", "/chat.toml");
  EXPECT_TRUE(IsRefused(second.Try(0)));
  EXPECT_EQ(second.trouble(), "");
}

TEST_F(LeadContestTest, AnotherFleetIsRefusedInALineThatNamesTheLeader) {
  const auto first = Of("GPU-a", "/chat.toml").Try(0);
  LeadContest second = Of("GPU-b", "/code.toml");
  for (uint64_t s = 0; s < 60; ++s) {
    EXPECT_TRUE(IsRefused(second.Try(s * kSecond)));
  }
  EXPECT_THAT(second.trouble(), HasSubstr("/code.toml is not planned"));
  EXPECT_THAT(second.trouble(),
              HasSubstr(absl::StrCat("pid ", getpid(),
                                     " (GPU-a) leads the fleet /chat.toml")));
  EXPECT_THAT(second.trouble(), HasSubstr("FINESERVE_RUNTIME_DIR"));
}

// Otherwise, a fleet would lose its lead whenever its leader dies.
TEST_F(LeadContestTest, DaemonsOfTheFleetThatWasLedComeFirst) {
  LeadContest other = Of("GPU-b", "/code.toml");
  { const auto first = Of("GPU-a", "/chat.toml").Try(0); }
  EXPECT_TRUE(IsRefused(other.Try(1 * kSecond)));
  EXPECT_TRUE(IsRefused(other.Try(2 * kSecond)));
  {
    const auto next = Of("GPU-c", "/chat.toml").Try(2 * kSecond);
    EXPECT_TRUE(next.ok()) << next.status();
    EXPECT_TRUE(IsRefused(other.Try(20 * kSecond)));
  }
  EXPECT_TRUE(IsRefused(other.Try(21 * kSecond)));
  EXPECT_TRUE(other.Try(31 * kSecond).ok()) << "no other daemon wants it";
  EXPECT_EQ(other.trouble(), "");
}

TEST_F(LeadContestTest, PlanOfAnotherFleetIsNotGoneOnWith) {
  StandingPlan plan;
  plan.number = 7;
  for (const bool is_other : {false, true}) {
    {
      auto store = PlanStore::Open(folder_, *Of("GPU-a", "/chat.toml").Try(0));
      ASSERT_TRUE(store.Write(plan, "").ok());
    }
    LeadContest contest = Of("GPU-b", is_other ? "/code.toml" : "/chat.toml");
    auto lead = contest.Try(1 * kSecond);
    if (is_other) lead = contest.Try(20 * kSecond);
    ASSERT_TRUE(lead.ok()) << lead.status();
    const auto store = PlanStore::Open(folder_, *std::move(lead));
    EXPECT_EQ(store.Read().ok(), !is_other);
    EXPECT_EQ(std::filesystem::exists(folder_ + "/plan.json.other"), is_other);
  }
}

TEST_F(LeadContestTest, LeaderThatShowsThatItIsWellKeepsTheLead) {
  auto first = *Of("GPU-a", "/chat.toml").Try(0);
  LeadContest second = Of("GPU-b", "/chat.toml");
  for (uint64_t s = 1; s < 60; ++s) {
    absl::SleepFor(absl::Milliseconds(5));  // a file's time is that coarse
    ASSERT_TRUE(first.Hold().ok());
    EXPECT_TRUE(IsRefused(second.Try(s * kSecond)));
    EXPECT_EQ(second.trouble(), "");
  }
}

TEST_F(LeadContestTest, LeadOfAStoppedLeaderIsTakenAndItStepsDown) {
  auto first = *Of("GPU-a", "/chat.toml").Try(0);
  LeadContest second = Of("GPU-b", "/chat.toml");
  EXPECT_TRUE(IsRefused(second.Try(1 * kSecond)));
  EXPECT_TRUE(IsRefused(second.Try(7 * kSecond)));
  EXPECT_THAT(second.trouble(),
              HasSubstr(absl::StrCat("kill -CONT ", getpid())));
  auto taken = second.Try(16 * kSecond);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(taken->was_taken_from_stopped());
  EXPECT_EQ(second.trouble(), "");
  EXPECT_TRUE(absl::IsFailedPrecondition(first.Hold())) << "it woke up";
  EXPECT_TRUE(taken->Hold().ok());
}

// Therefore, the plans that the stopped leader sends before it finds that it
// has lost the lead are refused.
TEST_F(LeadContestTest, PlansOfTheNextLeaderGoBeyondTheStoppedLeaders) {
  auto first = PlanStore::Open(folder_, *Of("GPU-a", "/chat.toml").Try(0));
  StandingPlan plan;
  plan.number = 7;
  ASSERT_TRUE(first.Write(plan, "").ok());
  LeadContest second = Of("GPU-b", "/chat.toml");
  EXPECT_TRUE(IsRefused(second.Try(1 * kSecond)));
  const ManualClock clock;
  const Leader leader(
      FleetOf({1}, 2), "GPU-b",
      PlanStore::Open(folder_, *second.Try(16 * kSecond)), &clock,
      [] { return ""; }, std::launch::deferred);
  EXPECT_GE(leader.PlanToSend()->number, 1007u);
  plan.number = 8;
  EXPECT_FALSE(first.Write(plan, "").ok());
}

}  // namespace
}  // namespace fineserve::lead
