// A graph was captured over private scratch, and slabs are then swapped in at
// the same addresses. Does its replay always use the memory that is mapped
// there now, and what does a swap cost?

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/conformance/control.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr int kGranules = 32;
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

// Captures a graph that fills the range with kGraphsWord, with one node per
// granule.
CUgraphExec CaptureFills(const Session& gpu, CUdeviceptr range) {
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

// A kernel that stores a word at both ends of each granule, with one block per
// granule.
constexpr char kPtx[] = R"(.version 6.3
.target sm_75
.address_size 64
.visible .entry mark_granules(.param .u64 range, .param .u64 unit,
                              .param .u32 word) {
  .reg .u32 %r<3>;
  .reg .u64 %rd<6>;
  ld.param.u64 %rd1, [range];
  ld.param.u64 %rd2, [unit];
  ld.param.u32 %r1, [word];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %ctaid.x;
  cvt.u64.u32 %rd3, %r2;
  mul.lo.u64 %rd4, %rd3, %rd2;
  add.u64 %rd4, %rd1, %rd4;
  st.global.u32 [%rd4], %r1;
  add.u64 %rd5, %rd4, %rd2;
  st.global.u32 [%rd5+-4], %r1;
  ret;
}
)";

// Does the same on the host, for a device that does not interpret PTX.
void MarkOnTheHost(const void* const* arguments, void*) {
  CUdeviceptr range;
  uint64_t unit;
  memcpy(&range, arguments[0], sizeof(range));
  memcpy(&unit, arguments[1], sizeof(unit));
  for (int i = 0; i < kGranules; ++i) {
    const CUdeviceptr granule = range + i * unit;
    for (const CUdeviceptr at : {granule, granule + unit - 4}) {
      memcpy(reinterpret_cast<void*>(at), arguments[2], sizeof(uint32_t));
    }
  }
}

// Captures a kernel over the range. The driver compiles it from text.
CUgraphExec CaptureKernel(const Session& gpu, CUdeviceptr range) {
  if (OnEmulatedDevice()) {
    const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(uint64_t),
                            sizeof(uint32_t)};
    EXPECT_EQ(CONTROL(emucuda_register_kernel)("mark_granules", MarkOnTheHost,
                                               nullptr, sizes, 3),
              0);
  }
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  EXPECT_EQ(Cuda().cuModuleLoadData(&module, kPtx), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuModuleGetFunction(&kernel, module, "mark_granules"),
            CUDA_SUCCESS);
  const CUstream stream = NewStream();
  EXPECT_EQ(
      Cuda().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
      CUDA_SUCCESS);
  uint64_t unit = gpu.granularity();
  uint32_t word = kGraphsWord;
  void* arguments[] = {&range, &unit, &word};
  EXPECT_EQ(Cuda().cuLaunchKernel(kernel, kGranules, 1, 1, 1, 1, 1, 0, stream,
                                  arguments, nullptr),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(Cuda().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
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

// Replays what `capture` captured after each of many swaps.
void ExpectReplayFollows(CUgraphExec (*capture)(const Session&, CUdeviceptr)) {
  if (Cuda().cuGraphInstantiateWithFlags == nullptr) {
    GTEST_SKIP() << "this driver has no graphs (CUDA < 11.4)";
  }
  const Session gpu;
  const uint64_t bytes = kGranules * gpu.granularity();
  const std::array<Memory, 2> memory = {Memory(gpu), Memory(gpu)};
  const CUdeviceptr range = gpu.Reserve(bytes);
  MapAll(gpu, range, memory[0]);
  const CUgraphExec exec = capture(gpu, range);
  std::vector<double> swaps_us;
  const int rounds = OnEmulatedDevice() ? 5 : 50;  // it fills on the host
  for (int round = 1; round <= rounds; ++round) {
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

CONFORMANCE_TEST(Swap, GraphReplayFollowsTheAddress) {
  ExpectReplayFollows(CaptureFills);
}

CONFORMANCE_TEST(Swap, CapturedKernelFollowsTheAddress) {
  ExpectReplayFollows(CaptureKernel);
}

}  // namespace
}  // namespace fineserve::gpu
