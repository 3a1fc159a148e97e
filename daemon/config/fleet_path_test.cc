#include "daemon/config/fleet_path.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace fineserve::config {
namespace {

namespace fs = std::filesystem;

// As Kubernetes mounts a ConfigMap: fleet.toml → ..data/fleet.toml, and
// ..data → the folder of the present version.
class FleetPathTest : public testing::Test {
 protected:
  FleetPathTest() {
    char path[] = "/tmp/fleet_path_test.XXXXXX";
    folder_ = mkdtemp(path);
    for (const char* version : {"1", "2"}) {
      fs::create_directory(folder_ / version);
      std::ofstream(folder_ / version / "fleet.toml") << version;
    }
    fs::create_symlink("1", folder_ / "..data");
    fs::create_symlink("..data/fleet.toml", folder_ / "fleet.toml");
  }
  ~FleetPathTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(FleetPathTest, UpdatedConfigMapIsTheSameFleet) {
  const std::string before = FleetPath(folder_ / "fleet.toml");
  fs::remove(folder_ / "..data");
  EXPECT_TRUE(IsSameFleet(before, FleetPath(folder_ / "fleet.toml")));
  fs::create_symlink("2", folder_ / "..data");
  EXPECT_TRUE(IsSameFleet(before, FleetPath(folder_ / "fleet.toml")));
}

TEST_F(FleetPathTest, FileHasOneFleetHoweverItsPathIsWritten) {
  const std::string path = FleetPath(folder_ / "fleet.toml");
  EXPECT_TRUE(IsSameFleet(path, FleetPath(folder_ / "1/../1/fleet.toml")));
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(FleetPath("fleet.toml"), path);
  fs::current_path(before);
}

TEST_F(FleetPathTest, OtherFileIsAnotherFleet) {
  const std::string path = FleetPath(folder_ / "fleet.toml");
  EXPECT_FALSE(IsSameFleet(path, folder_ / "2/fleet.toml"));
  EXPECT_FALSE(IsSameFleet(path, folder_ / "missing.toml"));
}

}  // namespace
}  // namespace fineserve::config
