#include "daemon/scheduling/lead/plan_board.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "daemon/contract/wire/message.h"

namespace fineserve::admission {
namespace {

wire::PlanT PlanOf(uint64_t number, wire::PlaceState state) {
  wire::PlanT plan;
  plan.number = number;
  plan.places.push_back(std::make_unique<wire::PlannedPlaceT>());
  plan.places[0]->engine = "a";
  plan.places[0]->state = state;
  return plan;
}

TEST(PlanBoardTest, FollowsTheNewestPlanOnly) {
  PlanBoard board;
  EXPECT_EQ(board.newest().plan(), nullptr);
  EXPECT_TRUE(board.newest().LetsIn("a"));
  ASSERT_TRUE(board.Take(PlanOf(2, wire::PlaceState::kRetire)).ok());
  EXPECT_FALSE(board.newest().LetsIn("a"));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      board.Take(PlanOf(1, wire::PlaceState::kServe))));
  EXPECT_FALSE(board.newest().LetsIn("a"));
  EXPECT_EQ(board.newest().plan()->number, 2u);
}

TEST(PlanBoardTest, WithoutAPlannerNoPlanHoldsOrIsTaken) {
  PlanBoard board;
  ASSERT_TRUE(board.Take(PlanOf(2, wire::PlaceState::kRetire)).ok());
  board.SetPlanned(false);
  EXPECT_EQ(board.newest().plan(), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      board.Take(PlanOf(3, wire::PlaceState::kRetire))));
  EXPECT_TRUE(board.newest().LetsIn("a"));
  board.SetPlanned(true);
  EXPECT_TRUE(board.Take(PlanOf(4, wire::PlaceState::kRetire)).ok());
}

class SilentLeader final : public LeaderSeat {
 public:
  void Describe(wire::PlanStateT*) const override {}
  absl::Status Steer(const wire::SteerT&) override { return absl::OkStatus(); }
};

TEST(PlanBoardTest, LeaderSitsHereUntilItLeaves) {
  PlanBoard board;
  EXPECT_EQ(board.leader(), nullptr);
  SilentLeader leader;
  board.SetLeader(&leader);
  EXPECT_EQ(board.leader(), &leader);
  board.SetLeader(nullptr);
  EXPECT_EQ(board.leader(), nullptr);
}

}  // namespace
}  // namespace fineserve::admission
