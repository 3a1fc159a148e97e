// Tests the leader through the grants of its node, in a fleet of two machines.

#include "daemon/fineserved/server/leader_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/base/whole_file.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "daemon/scheduling/lead/lead_fixture.h"
#include "daemon/scheduling/lead/standing_plan.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::server {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kTerm = 42;

// No daemon answers, so a leader leaves the plan as it is.
class LeaderServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("FINESERVE_MACHINE");
    setenv("FINESERVE_KEYS", (folder_.path() + "/keys").c_str(), 1);
    fleet_ = lead::FleetOf({1}, 2);
    fleet_.cluster.machines = {{"here", "127.0.0.1", {"GPU-0"}},
                               {"there", "192.0.2.1", {"GPU-1"}}};
    // The loop's time is the machine's, so every beat is due.
    clock_.AdvanceNs(kSecond);
  }

  lead::StandingPlan Plan(uint64_t number, uint64_t term) const {
    lead::StandingPlan plan = lead::Serving(fleet_, {"a-0"});
    plan.number = number;
    plan.term = term;
    return plan;
  }
  void Keep(const lead::StandingPlan& plan) {
    ASSERT_TRUE(
        base::ReplaceFile(folder_.path() + "/plan.json", lead::PlanText(plan))
            .ok());
  }
  lead::StandingPlan Kept() const {
    const auto text = base::ReadWholeFile(folder_.path() + "/plan.json");
    const auto plan = lead::ParsePlan(text.ok() ? *text : "");
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *plan : lead::StandingPlan();
  }
  // `plan` is the plan with which the term begins, `carried` the newest plan
  // number in etcd.
  void Grant(const std::string& plan, uint64_t carried) {
    const cluster::LeadGrant grant{
        kTerm, clock_.NowNs() + 4 * kSecond, plan, carried, {}};
    ASSERT_TRUE(cluster::WriteGrant(folder_.path(), grant).ok());
  }
  void View(const std::string& trouble) {
    cluster::FleetView view;
    view.has_quorum = true;
    view.written_ns = clock_.NowNs();
    view.trouble = trouble;
    ASSERT_TRUE(cluster::WriteView(folder_.path(), view).ok());
  }
  absl::Status Freeze() {
    wire::SteerT steer;
    steer.freeze = true;
    return board_.leader()->Steer(steer);
  }
  // Starts a daemon, which has the lead from its first beat.
  void Lead() {
    server_.reset();
    server_ = std::make_unique<LeaderServer>(
        fleet_, lead::Contender{getpid(), "GPU-0", "/fleet.toml"},
        folder_.path(), &board_, &clock_, &loop_);
    ASSERT_TRUE(loop_.RunOnce());
    ASSERT_TRUE(server_->Measure().leads);
  }

  const process::TemporaryFolder folder_;
  config::Fleet fleet_;
  ManualClock clock_;
  EventLoop loop_;
  admission::PlanBoard board_;
  std::unique_ptr<LeaderServer> server_;
};

TEST_F(LeaderServerTest, ATermBeginsWithThePlanThatEtcdHas) {
  Keep(Plan(70, kTerm - 1));
  Grant(lead::PlanText(Plan(80, kTerm - 1)), 80);
  Lead();
  EXPECT_EQ(Kept(), Plan(80, kTerm));
}

TEST_F(LeaderServerTest, ALeaderWithinATermGoesOnFromTheTermsNewestPlan) {
  const std::string first = lead::PlanText(Plan(80, kTerm - 1));
  Grant(first, 80);
  Lead();
  Keep(Plan(95, kTerm));
  Grant(first, 95);
  Lead();
  EXPECT_EQ(Kept(), Plan(95, kTerm));
}

// etcd was replaced by a new cluster, or the fleet had one machine before.
TEST_F(LeaderServerTest, WithoutAPlanInEtcdTheMachinesOwnBecomesTheTerms) {
  Keep(Plan(70, 0));
  Grant("", 0);
  Lead();
  EXPECT_EQ(Kept(), Plan(70, kTerm)) << "else the node would not carry it";
}

TEST_F(LeaderServerTest, WithoutAnyPlanATermBeginsWithNone) {
  Grant("", 0);
  Lead();
  EXPECT_FALSE(base::ReadWholeFile(folder_.path() + "/plan.json").ok());
}

TEST_F(LeaderServerTest, OperatorsOrderIsKeptIfItCanBeCarried) {
  Grant(lead::PlanText(Plan(80, kTerm - 1)), 80);
  View("");
  Lead();
  EXPECT_TRUE(Freeze().ok());
  EXPECT_TRUE(Kept().frozen);
}

TEST_F(LeaderServerTest, OperatorsOrderIsRefusedWhileEtcdTakesNoWrites) {
  Grant(lead::PlanText(Plan(80, kTerm - 1)), 80);
  Lead();
  View("cannot write to etcd: no space");
  EXPECT_THAT(std::string(Freeze().message()), HasSubstr("no space"));
  EXPECT_FALSE(Kept().frozen);
}

TEST_F(LeaderServerTest, OperatorsOrderIsRefusedWithoutAGrant) {
  Grant(lead::PlanText(Plan(80, kTerm - 1)), 80);
  View("");
  Lead();
  clock_.AdvanceNs(4 * kSecond);
  EXPECT_THAT(std::string(Freeze().message()), HasSubstr("no longer leads"));
  EXPECT_FALSE(Kept().frozen);
}

}  // namespace
}  // namespace fineserve::server
