#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "daemon/config/fleet.h"

namespace fineserve::config {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Fleet> ReadCluster(const std::string& cluster,
                                  const std::string& engine_gpu = "GPU-b0") {
  char path[] = "/tmp/fineserve-cluster-XXXXXX";
  const int fd = mkstemp(path);
  EXPECT_GE(fd, 0);
  close(fd);
  std::ofstream(path) << cluster
                      << "\n[[model]]\nname = \"m\"\nslo_ttft_ms = 800\n"
                         "[[engine]]\nname = \"e\"\nmodel = \"m\"\n"
                         "url = \"http://{host}:9001\"\ngpu = \""
                      << engine_gpu
                      << "\"\ncommand = [\"serve\", \"--host\", \"{host}\"]\n";
  absl::StatusOr<Fleet> fleet = ReadFleet(path);
  unlink(path);
  return fleet;
}

constexpr char kMachines[] = R"(
machines = [
  { name = "a", host = "10.0.0.1", gpus = ["GPU-a0", "GPU-a1"] },
  { name = "b", host = "10.0.0.2", gpus = ["GPU-b0"] },
]
)";

TEST(FleetClusterTest, OneLineMakesASecondMachineAndItsEnginesHaveItsHost) {
  const auto fleet = ReadCluster("[cluster]\netcd = [\"127.0.0.1:2379\"]" +
                                 std::string(kMachines));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_TRUE(fleet->cluster.IsOn());
  EXPECT_EQ(fleet->engines[0].host, "10.0.0.2");
  EXPECT_EQ(fleet->engines[0].command[2], "10.0.0.2");
  EXPECT_EQ(fleet->cluster.MachineOf("GPU-b0c1")->name, "b");
  EXPECT_EQ(fleet->cluster.MachineOf(""), nullptr);
  EXPECT_EQ(fleet->cluster.PortOf("GPU-a1"), 7481);
  EXPECT_EQ(fleet->cluster.PortOf("GPU-c"), 0);
}

TEST(FleetClusterTest, WhatCannotWorkIsSaidInOneLineWithTheFix) {
  struct Case {
    std::string cluster, gpu, says;
  };
  const std::string etcd = "[cluster]\netcd = [\"127.0.0.1:2379\"]\n";
  for (const Case& c : {
           Case{"[cluster]\n" + std::string(kMachines), "GPU-b0",
                "several machines need etcd"},
           Case{etcd + kMachines, "GPU-c0", "has its GPU GPU-c0"},
           Case{"", "GPU-b0", "no machine of [cluster] has GPU-b0"},
           Case{etcd + "ttl = 4\n" + kMachines, "GPU-b0", "from 5 to"},
           Case{"[cluster]\netcd = [\"nowhere\"]\n" + std::string(kMachines),
                "GPU-b0", "addresses"},
           Case{etcd + "machines = [{ name = \"a\", host = \"h\", gpus = "
                       "[\"GPU-b\"] }, { name = \"a\", host = \"i\", gpus = "
                       "[\"GPU-c\"] }]",
                "GPU-b0", "two machines"},
           Case{etcd + "machines = [{ name = \"a\", host = \"h\", gpus = "
                       "[\"GPU-b\"] }, { name = \"c\", host = \"i\", gpus = "
                       "[\"GPU-b0\"] }]",
                "GPU-b0", "another machine"},
           Case{etcd + "machines = [{ name = \"a/b\", host = \"h\", gpus = "
                       "[\"GPU-b\"] }]",
                "GPU-b0", "a machine needs name"},
       }) {
    const auto fleet = ReadCluster(c.cluster, c.gpu);
    ASSERT_FALSE(fleet.ok()) << c.says;
    EXPECT_THAT(std::string(fleet.status().message()), HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace fineserve::config
