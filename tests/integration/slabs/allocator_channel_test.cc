// Engines that allocate their KV by calls other than cuMemAlloc. Slabs replace
// that memory too.
#include <gmock/gmock.h>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class AllocatorChannel : public Site,
                         public ::testing::WithParamInterface<const char*> {
 protected:
  std::unique_ptr<Process> Start(const std::string& kv) {
    return StartEngine(kv, {"--allocator", GetParam()});
  }
};

TEST_P(AllocatorChannel, KvLandsInSlabsAndKeepsItsData) {
  const auto daemon = StartDaemon();
  const auto engine = Start("8MiB");
  EXPECT_EQ(SlabsOf(engine->pid()), 4u);
  const auto other = StartEngine("12MiB", {"--seed", "22"});
  EXPECT_THAT(engine->Ask("write 7"), HasSubstr("ok"));
  EXPECT_THAT(other->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
}

TEST_P(AllocatorChannel, FreedMemoryComesBackAndIsZero) {
  const auto daemon = StartDaemon();
  const auto engine = Start("16MiB");  // half of the pool
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(engine->Ask("free"), HasSubstr("ok freed"));
    ASSERT_THAT(engine->Ask("alloc"), HasSubstr("ok allocated"));
    ASSERT_THAT(engine->Ask("checkzero"), HasSubstr("ok zero"));
    ASSERT_THAT(engine->Ask("write " + std::to_string(i)), HasSubstr("ok"));
    ASSERT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  }
  EXPECT_EQ(SlabsOf(engine->pid()), 8u);
}

TEST_P(AllocatorChannel, ExhaustedPoolIsOutOfMemory) {
  const auto daemon = StartDaemon();
  const auto a = StartEngine("24MiB");
  const auto b = LaunchEngine("12MiB", {"--allocator", GetParam()});
  EXPECT_THAT(b->ReadLine(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(b->Wait(), 4);
}

TEST_P(AllocatorChannel, WithoutDaemonTheDriverServesIt) {
  const auto engine =
      StartEngineWithoutDaemon("8MiB", {"--allocator", GetParam()});
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(engine->Stderr(), HasSubstr("no daemon"));
}

INSTANTIATE_TEST_SUITE_P(By, AllocatorChannel,
                         ::testing::Values("plain", "async", "virtual", "rdma"),
                         [](const auto& p) { return std::string(p.param); });

using RdmaKv = Site;

// The pool's granules do not support RDMA either. The engine sees that its
// device does not, and asks for plain memory.
TEST_F(RdmaKv, DeviceWithoutItServesPlainMemory) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "a real GPU is what it is";
  Set("EMUCUDA_GPU_DIRECT_RDMA", "0");
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB", {"--allocator", "rdma"});
  EXPECT_EQ(SlabsOf(engine->pid()), 4u);
}

}  // namespace
}  // namespace fineserve::integration
