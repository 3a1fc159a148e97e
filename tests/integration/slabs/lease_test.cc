// Living engines: which slabs each one gets, and what is in them.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using abi::SlabState;
using ::testing::HasSubstr;

using LeaseTest = Site;

TEST_F(LeaseTest, TwoStockEnginesShareOnePoolAndKeepTheirData) {
  const auto daemon = StartDaemon();
  const auto a = StartEngine("8MiB", {"--seed", "11"});
  const auto b = StartEngine("12MiB", {"--seed", "22"});
  EXPECT_EQ(SlabsOf(a->pid()), 4u);
  EXPECT_EQ(SlabsOf(b->pid()), 6u);
  EXPECT_EQ(SlabsIn(SlabState::kFree), 6u);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(a->Ask("write " + std::to_string(100 + round)),
                HasSubstr("ok"));
    EXPECT_THAT(b->Ask("verify"), HasSubstr("ok verified"));
    EXPECT_THAT(b->Ask("write " + std::to_string(200 + round)),
                HasSubstr("ok"));
    EXPECT_THAT(a->Ask("verify"), HasSubstr("ok verified"));
  }
}

TEST_F(LeaseTest, WeightsAndWorkspaceStayWhereTheyWere) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("4MiB", {"--weights", "40MiB"});
  EXPECT_EQ(SlabsOf(engine->pid()), 2u);
}

TEST_F(LeaseTest, AllocationThatIsNoMultipleOfASlabGetsWholeSlabs) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("5MiB");
  EXPECT_EQ(SlabsOf(engine->pid()), 4u);
}

TEST_F(LeaseTest, FreedKvGoesToTheNextEngineAndIsZeroThere) {
  const auto daemon = StartDaemon();
  const auto a = StartEngine("32MiB", {"--seed", "77"});
  EXPECT_EQ(SlabsIn(SlabState::kFree), 0u);
  EXPECT_THAT(a->Ask("free"), HasSubstr("ok freed"));
  EXPECT_TRUE(EventuallyFree(kSlabs));
  const auto b = StartEngine("32MiB");  // expects "kv zero: yes"
  EXPECT_EQ(SlabsOf(b->pid()), kSlabs);
}

TEST_F(LeaseTest, ExhaustedPoolIsOutOfMemoryInTheEngineAndNamesTheHolders) {
  const auto daemon = StartDaemon();
  const auto a = StartEngine("24MiB");
  const auto b = LaunchEngine("12MiB");
  EXPECT_THAT(b->ReadLine(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(b->Wait(), 4);
  EXPECT_THAT(daemon->Stderr(),
              HasSubstr("pool exhausted: engine 2 (stock_engine-" +
                        std::to_string(b->pid()) + ") asked for 3 slabs"));
  EXPECT_THAT(daemon->Stderr(),
              HasSubstr("engine 1 (stock_engine-" + std::to_string(a->pid()) +
                        ") 12 slabs"));
  EXPECT_THAT(a->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(LeaseTest, KvInManyGranulesComesInSeveralBatches) {
  // 4 slabs of 64 granules need 256 descriptors, of which 253 fit into one
  // message.
  const auto daemon =
      StartDaemon({"--pool", "512MiB", "--slab", "128MiB", "--planes", "64"});
  const auto engine = StartEngine("512MiB", {"--layers", "1"});
  EXPECT_EQ(SlabsOf(engine->pid()), 4u);
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(LeaseTest, SizesDeclaredInTheConfigurationAreKv) {
  const std::string path = folder() + "/fineserve.toml";
  const auto declare = [&](const char* size) {
    FILE* file = fopen(path.c_str(), "w");
    fprintf(file, "[[engine]]\nname = \"stock_*\"\nkv_sizes = [\"%s\"]\n",
            size);
    fclose(file);
  };
  declare("4MiB");
  const auto daemon = StartDaemon({"--config", path});
  const auto run = [&] {
    auto engine = LaunchPreloaded(
        Words("stock_engine --kv 4MiB --workspace 3MiB --hold"));
    engine->ReadLineWith("ready");
    return engine;
  };
  const auto a = run();
  EXPECT_EQ(SlabsOf(a->pid()), 2u);
  declare("5MiB");
  daemon->Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] {
    return daemon->Stderr().find("read again") != std::string::npos;
  }));
  const auto b = run();
  EXPECT_EQ(SlabsOf(b->pid()), 0u);
}

TEST_F(LeaseTest, MembersOfOneEngineShareItsName) {
  const auto daemon = StartDaemon();
  Process::Environment environment = EngineEnvironment();
  environment["FINESERVE_ENGINE"] = "llama";
  environment["FINESERVE_KV_SIZES"] = "4MiB";
  std::vector<std::unique_ptr<Process>> members;
  for (int i = 0; i < 2; ++i) {
    members.push_back(std::make_unique<Process>(
        std::vector<std::string>{Program("stock_engine"), "--kv", "4MiB",
                                 "--workspace", "3MiB", "--hold"},
        environment));
    members.back()->ReadLineWith("ready");
  }
  const abi::TableSnapshot table = Table();
  ASSERT_EQ(table.engines.size(), 1u);
  EXPECT_EQ(table.engines[0].name, "llama");
  EXPECT_EQ(table.engines[0].member_pids.size(), 2u);
  EXPECT_EQ(table.engines[0].slabs_held, 4u);
}

TEST_F(LeaseTest, PeerWithAccessReachesKvOfItsPeersContext) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two devices with peer access";
  Set("EMUCUDA_DEVICES", "2");
  Set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // as the daemon counts
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("16MiB");
  EXPECT_EQ(SlabsOf(engine->pid()), 8u);
  EXPECT_EQ(engine->Ask("peer"), "ok peer 0");
}

// Programs reset a device to get all of its memory back.
TEST_F(LeaseTest, SlabsComeBackWhenTheirContextEnds) {
  const auto daemon = StartDaemon();
  for (const char* end : {"end reset", "end release"}) {
    const auto engine = StartEngine("24MiB");
    EXPECT_EQ(SlabsOf(engine->pid()), 12u);
    EXPECT_EQ(engine->Ask(end), "ok ended");
    EXPECT_EQ(SlabsOf(engine->pid()), 0u);
    EXPECT_TRUE(EventuallyFree(kSlabs));
    EXPECT_TRUE(engine->alive());
  }
}

}  // namespace
}  // namespace fineserve::integration
