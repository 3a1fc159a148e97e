// A graph was captured over private scratch; then slabs are swapped in at the
// same addresses. Does its replay follow the addresses, every time, and what
// does a swap cost?

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr int kGranules = 32;
constexpr int kSwapRounds = 50;
constexpr uint32_t kGraphsWord = 0x600d;

// kGranules of memory that stay visible at a separate address.
struct Memory {
  explicit Memory(const Session& gpu)
      : alias(gpu.Reserve(kGranules * gpu.granularity())) {
    for (int i = 0; i < kGranules; ++i) {
      granules.push_back(gpu.Create(gpu.granularity()));
      gpu.MapAt(alias + i * gpu.granularity(), gpu.granularity(),
                granules.back());
    }
  }
  CUdeviceptr alias;
  std::vector<CUmemGenericAllocationHandle> granules;
};

void MapAll(const Session& gpu, CUdeviceptr range, const Memory& memory) {
  const uint64_t unit = gpu.granularity();
  for (int i = 0; i < kGranules; ++i) {
    ASSERT_EQ(Cuda().cuMemMap(range + i * unit, unit, 0, memory.granules[i], 0),
              CUDA_SUCCESS);
  }
  const auto access = DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_EQ(Cuda().cuMemSetAccess(range, kGranules * unit, &access, 1),
            CUDA_SUCCESS);
}

// A graph that fills the range with kGraphsWord, one node per granule.
CUgraphExec Capture(const Session& gpu, CUdeviceptr range) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  const uint64_t unit = gpu.granularity();
  EXPECT_EQ(Cuda().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  for (int i = 0; i < kGranules; ++i) {
    const CUDA_MEMSET_NODE_PARAMS fill = {range + i * unit, 0, kGraphsWord, 4,
                                          unit / 4,         1};
    EXPECT_EQ(Cuda().cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill,
                                          gpu.context()),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(Cuda().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  return exec;
}

void Mark(const Session& gpu, const Memory& memory, uint32_t word) {
  EXPECT_EQ(Cuda().cuMemsetD32_v2(memory.alias, word,
                                  kGranules * gpu.granularity() / 4),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
}

void ExpectWord(const Session& gpu, const Memory& memory, uint32_t word) {
  for (int i = 0; i < kGranules; ++i) {
    const CUdeviceptr granule = memory.alias + i * gpu.granularity();
    ASSERT_EQ(gpu.Read(granule), word) << "granule " << i;
    ASSERT_EQ(gpu.Read(granule + gpu.granularity() - 4), word)
        << "granule " << i;
  }
}

CONFORMANCE_TEST(Swap, GraphReplayFollowsTheAddress) {
  if (Cuda().cuGraphInstantiateWithFlags == nullptr) {
    GTEST_SKIP() << "this driver has no graphs (CUDA < 11.4)";
  }
  const Session gpu;
  const uint64_t bytes = kGranules * gpu.granularity();
  const std::array<Memory, 2> memory = {Memory(gpu), Memory(gpu)};
  const CUdeviceptr range = gpu.Reserve(bytes);
  MapAll(gpu, range, memory[0]);
  const CUgraphExec exec = Capture(gpu, range);
  std::vector<double> swaps_us;
  for (int round = 1; round <= kSwapRounds; ++round) {
    const Memory& in = memory[round % 2];
    const Memory& out = memory[(round + 1) % 2];
    const uint64_t start = NowNs();
    ASSERT_EQ(Cuda().cuMemUnmap(range, bytes), CUDA_SUCCESS);
    MapAll(gpu, range, in);
    swaps_us.push_back(static_cast<double>(NowNs() - start) / 1e3);
    Mark(gpu, in, 2 * round);
    Mark(gpu, out, 2 * round + 1);
    ASSERT_EQ(Cuda().cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    ExpectWord(gpu, in, kGraphsWord);
    ExpectWord(gpu, out, 2 * round + 1);
    if (testing::Test::HasFailure()) return;
  }
  Figure("swap_of_32_granules_us", Median(swaps_us));
}

}  // namespace
}  // namespace fineserve::gpu
