#include "tools/fsctl/daemons/find_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "tools/fsctl/daemons/fabricated_pool.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EngineProcessesTest : public testing::Test {
 protected:
  EngineProcessesTest() {
    setenv("FINESERVE_RUNTIME_DIR", folder_.path().c_str(), 1);
  }
  ~EngineProcessesTest() override { unsetenv("FINESERVE_RUNTIME_DIR"); }

  const process::TemporaryFolder folder_;
};

TEST_F(EngineProcessesTest, ANumberIsAProcessIdWithoutADaemon) {
  const std::string self = std::to_string(getpid());
  const auto pids = ProcessesOf("", self);
  ASSERT_TRUE(pids.ok()) << pids.status();
  EXPECT_THAT(*pids, ElementsAre(getpid()));
  EXPECT_EQ(*OneProcessOf("", self), getpid());
}

TEST_F(EngineProcessesTest, NoProcessHasSuchANumber) {
  for (const char* text : {"0", "-3"}) {
    const absl::Status status = ProcessesOf("", text).status();
    EXPECT_EQ(FailWithoutProcess(status), kExitUsage) << text;
  }
}

TEST_F(EngineProcessesTest, ANameNeedsADaemonAndSaysSo) {
  const absl::Status status = ProcessesOf("", "llama-a").status();
  EXPECT_EQ(FailWithoutProcess(status), kExitNoDaemon);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("give its process id instead"));
}

// Returns the pool of a GPU with one engine that has these processes.
Pool PoolWith(uint8_t gpu, const std::string& engine,
              std::vector<uint32_t> pids) {
  Pool pool = FabricatePool();
  pool.socket = "/run/fineserve/GPU-" + std::to_string(gpu) + ".sock";
  pool.table.gpu_uuid[0] = gpu;
  pool.table.engines.resize(1);
  pool.table.engines[0].id = gpu;
  pool.table.engines[0].name = engine;
  pool.table.engines[0].member_pids = std::move(pids);
  return pool;
}

TEST(EngineInPoolsTest, EngineOnSeveralGpusIsFoundOnAllOfThem) {
  // 70 runs the block pool.
  const std::vector<Pool> all = {
      PoolWith(1, "wide", {71, 70}), PoolWith(2, "wide", {70, 72}),
      PoolWith(3, "wide", {80}), PoolWith(4, "small", {90})};
  const auto found = FindEngineInPools({all[1]}, all, "wide");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].engine.id, 2u) << "of the one that was asked, first";
  EXPECT_EQ((*found)[1].engine.id, 1u);
  const auto small = FindEngineInPools(all, all, "small");
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->size(), 1u);
}

TEST(EngineInPoolsTest, EnginesOfOneNameOnSeveralGpusNeedAChoice) {
  const std::vector<Pool> all = {PoolWith(1, "small", {71}),
                                 PoolWith(2, "small", {72})};
  const absl::Status several = FindEngineInPools(all, all, "small").status();
  EXPECT_TRUE(absl::IsInvalidArgument(several));
  EXPECT_THAT(std::string(several.message()), HasSubstr("--gpu: GPU-01"));
  EXPECT_TRUE(absl::IsNotFound(FindEngineInPools(all, all, "x").status()));
}

}  // namespace
}  // namespace fineserve::fsctl
