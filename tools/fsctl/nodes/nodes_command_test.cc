#include "tools/fsctl/nodes/nodes_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

cluster::FleetView TwoMachines() {
  cluster::FleetView view;
  view.machine = "a";
  view.leader = "b";
  view.term = 42;
  view.plan_number = 7;
  view.has_quorum = true;
  cluster::SeenMachine a, b;
  a.record = {"a", "10.0.0.1", "i", "KEY", {}};
  cluster::DaemonRecord d;
  d.gpu = "GPU-1";
  d.answers = true;
  d.pool_bytes = 64 << 20;
  d.plan_term = 42;
  d.plan_number = 7;
  a.record.daemons = {d};
  a.is_alive = true;
  b.record = {"b\x1b[2J", "10.0.0.2", "i", "KEY", {}};
  b.is_lost = true;
  view.machines = {a, b};
  return view;
}

TEST(NodesOutputTest, ShowsWhichAreAliveAndByWhichPlan) {
  const std::string text = NodesText(TwoMachines(), "", false);
  EXPECT_THAT(text, HasSubstr("a (here)"));
  EXPECT_THAT(text, HasSubstr("7/42"));
  EXPECT_THAT(text, HasSubstr("64 MiB"));
  EXPECT_THAT(text, HasSubstr("lost"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "another machine's name";
}

TEST(NodesOutputTest, NamesWhatWasRefusedWhereAndWhatToDo) {
  cluster::FleetView view = TwoMachines();
  cluster::DaemonRecord& d = view.machines[0].record.daemons[0];
  d.refused[static_cast<size_t>(wire::ConnectionFault::kUntrusted)] = 3;
  d.refused[static_cast<size_t>(wire::ConnectionFault::kDamaged)] = 1;
  d.plans_refused = 2;
  view.strangers = 4;
  view.fenced = 5;
  const std::string text = NodesText(view, "", false);
  EXPECT_THAT(text, HasSubstr("a (GPU-1): 3 connections of keys that are not"));
  EXPECT_THAT(text, HasSubstr("a (GPU-1): 1 connections ended by a frame"));
  EXPECT_THAT(text, HasSubstr("a (GPU-1): 2 plans were refused"));
  EXPECT_THAT(text, HasSubstr("a: 4 answers of another etcd cluster"));
  EXPECT_THAT(text, HasSubstr("a: etcd refused 5 plans"));
  const auto json = nlohmann::json::parse(NodesJson(view, ""));
  const auto& daemon = json["machines"][0]["daemons"][0];
  EXPECT_EQ(daemon["refused"]["untrusted"], 3);
  EXPECT_EQ(daemon["refused"]["no_handshake"], 0);
  EXPECT_EQ(daemon["plans_refused"], 2);
  EXPECT_EQ(json["fenced"], 5);
}

TEST(NodesOutputTest, TroubleIsLast) {
  EXPECT_THAT(NodesText(TwoMachines(), "etcd is down", false),
              ::testing::EndsWith("trouble: etcd is down\n"));
}

TEST(NodesOutputTest, JsonHasTheSame) {
  const auto json = nlohmann::json::parse(NodesJson(TwoMachines(), "x"));
  EXPECT_EQ(json["term"], 42);
  EXPECT_EQ(json["machines"][0]["daemons"][0]["plan"], 7);
  EXPECT_EQ(json["machines"][1]["state"], "lost");
  EXPECT_EQ(json["trouble"], "x");
}

}  // namespace
}  // namespace fineserve::fsctl
