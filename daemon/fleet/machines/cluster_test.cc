#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "daemon/fleet/machines/daemon_directory.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "daemon/fleet/machines/lead_grant.h"
#include "daemon/fleet/machines/this_machine.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kSecond = 1'000'000'000;

config::ClusterSettings TwoMachines() {
  config::ClusterSettings cluster;
  cluster.machines = {{"here", "127.0.0.1", {"GPU-a0", "GPU-a1"}},
                      {"there", "192.0.2.1", {"GPU-b0"}}};
  return cluster;
}

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("FINESERVE_MACHINE"); }
  const process::TemporaryFolder folder_;
};

TEST_F(ClusterTest, TheMachineIsKnownByAnAddressOfItsOwn) {
  EXPECT_EQ(ThisMachine(TwoMachines())->name, "here");
  setenv("FINESERVE_MACHINE", "there", 1);
  EXPECT_EQ(ThisMachine(TwoMachines())->name, "there");
  setenv("FINESERVE_MACHINE", "nowhere", 1);
  EXPECT_THAT(std::string(ThisMachine(TwoMachines()).status().message()),
              HasSubstr("nowhere"));
  unsetenv("FINESERVE_MACHINE");
  config::ClusterSettings both = TwoMachines();
  both.machines[1].host = "127.0.0.1";
  EXPECT_THAT(std::string(ThisMachine(both).status().message()),
              HasSubstr("more than one"));
}

TEST_F(ClusterTest, UpStartsThisMachinesEnginesAlone) {
  config::Fleet fleet;
  fleet.cluster = TwoMachines();
  for (const char* gpu : {"GPU-a1", "GPU-b0", "GPU-a0"}) {
    fleet.engines.emplace_back();
    fleet.engines.back().gpu = gpu;
  }
  const auto own = OwnPart(fleet);
  ASSERT_TRUE(own.ok());
  ASSERT_EQ(own->engines.size(), 2u);
  EXPECT_EQ(own->engines[1].gpu, "GPU-a0");
  fleet.cluster.machines.pop_back();
  EXPECT_EQ(OwnPart(fleet)->engines.size(), 3u) << "one machine has all";
}

TEST_F(ClusterTest, AGrantEndsByItself) {
  EXPECT_TRUE(absl::IsNotFound(ReadGrant(folder_.path(), 1).status()));
  const LeadGrant grant{42, 10 * kSecond, "{\"a\": \"\n\"}", 7, {"b"}};
  ASSERT_TRUE(WriteGrant(folder_.path(), grant).ok());
  const auto read = ReadGrant(folder_.path(), 10 * kSecond - 1);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->term, 42u);
  EXPECT_EQ(read->plan, grant.plan);
  EXPECT_EQ(read->carried, 7u);
  EXPECT_EQ(read->lost_machines, grant.lost_machines);
  EXPECT_TRUE(
      absl::IsNotFound(ReadGrant(folder_.path(), 10 * kSecond).status()));
  std::ofstream(GrantPath(folder_.path())) << "{\"term\": 42}";
  EXPECT_TRUE(absl::IsInvalidArgument(ReadGrant(folder_.path(), 1).status()));
}

TEST_F(ClusterTest, AGrantThatHasSurvivedARebootIsNone) {
  const uint64_t longest = config::ClusterSettings::kMostTtlS * kSecond;
  const LeadGrant grant{42, 20 * kSecond + longest, "", 7, {}};
  ASSERT_TRUE(WriteGrant(folder_.path(), grant).ok());
  EXPECT_TRUE(ReadGrant(folder_.path(), 20 * kSecond).ok());
  EXPECT_TRUE(
      absl::IsNotFound(ReadGrant(folder_.path(), 20 * kSecond - 1).status()));
}

TEST_F(ClusterTest, AnotherMachineThatIsNotTrustedIsNotConnectedTo) {
  const wire::KeyFolder keys(folder_.path() + "/keys");
  const DaemonDirectory directory(TwoMachines(), folder_.path(), keys);
  EXPECT_TRUE(directory.IsLocal("GPU-a0"));
  EXPECT_FALSE(directory.IsLocal("GPU-b0"));
  EXPECT_THAT(std::string(directory.Connect("GPU-b0").status().message()),
              HasSubstr("fsctl keys new"));
  ASSERT_TRUE(keys.WriteOwn(*wire::NewKeyPair(), false).ok());
  EXPECT_THAT(std::string(directory.Connect("GPU-b0").status().message()),
              HasSubstr("fsctl keys trust there KEY"));
  ASSERT_TRUE(keys.Trust("there", wire::NewKeyPair()->public_key).ok());
  EXPECT_TRUE(directory.Connect("GPU-b0").ok());
  EXPECT_EQ(RemoteDaemonOf(TwoMachines(), "GPU-a1", keys).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

FleetView View() {
  FleetView view;
  view.machine = "here";
  view.has_quorum = true;
  view.written_ns = 100 * kSecond;
  view.quorum_ns = 100 * kSecond;
  SeenMachine machine;
  machine.record.name = "here";
  DaemonRecord daemon;
  daemon.gpu = "GPU-a0";
  daemon.plan_term = 42;
  machine.record.daemons = {daemon};
  machine.is_alive = true;
  view.machines = {machine};
  return view;
}

TEST_F(ClusterTest, AViewIsReadAsItWasWritten) {
  EXPECT_TRUE(absl::IsNotFound(ReadView(folder_.path()).status()));
  ASSERT_TRUE(WriteView(folder_.path(), View()).ok());
  const auto view = ReadView(folder_.path());
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->machine, "here");
  ASSERT_EQ(view->machines.size(), 1u);
  EXPECT_TRUE(view->machines[0].is_alive);
  EXPECT_EQ(view->machines[0].record.daemons[0].plan_term, 42u);
}

TEST_F(ClusterTest, TroubleIsALostMajorityOrANodeThatDoesNotRun) {
  FleetView view = View();
  EXPECT_THAT(TroubleOf(view, 101 * kSecond), IsEmpty());
  view.has_quorum = false;
  EXPECT_THAT(TroubleOf(view, 107 * kSecond), HasSubstr("no model moves"));
  EXPECT_THAT(TroubleOf(view, 111 * kSecond), HasSubstr("fineserve-node"));
  EXPECT_THAT(TroubleOf(view, 99 * kSecond), HasSubstr("no model moves"));
  EXPECT_THAT(TroubleOf(view, 89 * kSecond), HasSubstr("fineserve-node"))
      << "the file has survived a reboot";
  EXPECT_THAT(TroubleOf(absl::NotFoundError(""), 0),
              HasSubstr("fineserve-node"));
}

TEST_F(ClusterTest, ARecordOfAnotherMachineMayBeAnything) {
  MachineRecord record = View().machines[0].record;
  record.key = "KEY";
  record.daemons[0].refused = {1, 2, 3};
  record.daemons[0].plans_refused = 6;
  const auto read = ParseRecord(RecordText(record));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->key, "KEY");
  ASSERT_EQ(read->daemons.size(), 1u);
  EXPECT_EQ(read->daemons[0].refused, record.daemons[0].refused);
  EXPECT_EQ(read->daemons[0].plans_refused, 6u);
  for (const char* text : {"", "[]", "{}", "{\"name\": 7}", "\xff"}) {
    EXPECT_FALSE(ParseRecord(text).ok()) << text;
  }
}

}  // namespace
}  // namespace fineserve::cluster
