// Graphs keep addresses, not memory: a graph works on the memory that is mapped
// at an address when it is launched.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

using ::testing::AnyOf;

// A graph of one-row word fills, one after the other.
class FillGraph {
 public:
  FillGraph() { EXPECT_EQ(Cuda().cuGraphCreate(&graph_, 0), CUDA_SUCCESS); }
  ~FillGraph() {
    EXPECT_EQ(Cuda().cuGraphDestroy(graph_), CUDA_SUCCESS);
    if (exec_ != nullptr) {
      EXPECT_EQ(Cuda().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
    }
  }

  CUresult TryAdd(const Session& gpu, CUDA_MEMSET_NODE_PARAMS fill) {
    CUgraphNode node = nullptr;
    const CUresult result = Cuda().cuGraphAddMemsetNode(
        &node, graph_, &last_, last_ != nullptr, &fill, gpu.context());
    if (result == CUDA_SUCCESS) last_ = node;
    return result;
  }
  void Add(const Session& gpu, CUdeviceptr to, unsigned word, size_t words) {
    EXPECT_EQ(TryAdd(gpu, {to, 0, word, 4, words, 1}), CUDA_SUCCESS);
  }
  void Instantiate() {
    EXPECT_EQ(Cuda().cuGraphInstantiateWithFlags(&exec_, graph_, 0),
              CUDA_SUCCESS);
  }
  void Launch(CUstream stream) {
    EXPECT_EQ(Cuda().cuGraphLaunch(exec_, stream), CUDA_SUCCESS);
  }
  void Run() {
    Launch(nullptr);
    EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }

 private:
  CUgraph graph_ = nullptr;
  CUgraphNode last_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

bool HasGraphs() {
  return Cuda().cuGraphCreate != nullptr &&
         Cuda().cuGraphInstantiateWithFlags != nullptr;
}
#define NEEDS_GRAPHS() \
  if (!HasGraphs()) GTEST_SKIP() << "this driver has no graphs (CUDA < 11.4)"

CONFORMANCE_TEST(Graph, NodesRunInTheOrderOfTheirDependencies) {
  NEEDS_GRAPHS();
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  FillGraph graph;
  graph.Add(gpu, address, 1, 8);
  graph.Add(gpu, address + 4, 2, 1);
  graph.Instantiate();
  graph.Run();
  EXPECT_EQ(gpu.Read(address), 1u);
  EXPECT_EQ(gpu.Read(address + 4), 2u);
  EXPECT_EQ(gpu.Read(address + 8), 1u);
}

CONFORMANCE_TEST(Graph, NodesAreListedUpToTheRoomThatThereIs) {
  NEEDS_GRAPHS();
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  CUgraph graph = nullptr;
  CUgraphNode made[2] = {}, found[3] = {};
  const CUDA_MEMSET_NODE_PARAMS fill = {address, 0, 1, 4, 1, 1};
  ASSERT_EQ(Cuda().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  for (CUgraphNode& node : made) {
    ASSERT_EQ(Cuda().cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill,
                                          gpu.context()),
              CUDA_SUCCESS);
  }
  size_t count = 0;
  EXPECT_EQ(Cuda().cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  count = 1;
  EXPECT_EQ(Cuda().cuGraphGetNodes(graph, found, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(found[1], nullptr);
  count = 3;
  found[2] = made[0];
  EXPECT_EQ(Cuda().cuGraphGetNodes(graph, found, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(found[2], nullptr);
}

CONFORMANCE_TEST(Graph, RowsLieAPitchApart) {
  NEEDS_GRAPHS();
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  gpu.Write(address + 16, 5);
  FillGraph graph;
  EXPECT_EQ(graph.TryAdd(gpu, {address, 512, 0x6161, 2, 8, 3}), CUDA_SUCCESS);
  graph.Instantiate();
  graph.Run();
  EXPECT_EQ(gpu.Read(address + 1024 + 12), 0x61616161u);
  EXPECT_EQ(gpu.Read(address + 16), 5u);
}

CONFORMANCE_TEST(Graph, LaterNodesDoNotChangeWhatWasInstantiated) {
  NEEDS_GRAPHS();
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  FillGraph graph;
  graph.Add(gpu, address, 1, 1);
  graph.Instantiate();
  graph.Add(gpu, address, 2, 1);
  graph.Run();
  EXPECT_EQ(gpu.Read(address), 1u);
}

CONFORMANCE_TEST(Graph, LaunchWaitsForItsStream) {
  NEEDS_GRAPHS();
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  FillGraph graph;
  graph.Add(gpu, address, 2, 1);
  graph.Instantiate();
  {
    Gate gate;
    ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuMemsetD32Async(address, 1, 1, stream), CUDA_SUCCESS);
    graph.Launch(stream);
    EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  }
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(address), 2u);
}

// FineServe does this under captured graphs when it activates an engine: it
// replaces scratch by a slab at the same address.
CONFORMANCE_TEST(Graph, ReplayAfterASwapWritesTheNewMemoryOnly) {
  NEEDS_GRAPHS();
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.Reserve(unit);
  const CUdeviceptr old_alias = gpu.Reserve(unit);
  const auto scratch = gpu.Create(unit), slab = gpu.Create(unit);
  gpu.MapAt(address, unit, scratch);
  gpu.MapAt(old_alias, unit, scratch);
  FillGraph graph;
  graph.Add(gpu, address, 7, unit / 4);
  graph.Instantiate();
  graph.Run();
  EXPECT_EQ(gpu.Read(old_alias), 7u);
  gpu.Write(old_alias, 8);
  ASSERT_EQ(Cuda().cuMemUnmap(address, unit), CUDA_SUCCESS);
  gpu.MapAt(address, unit, slab);
  gpu.Write(address + unit - 4, 9);
  graph.Run();
  EXPECT_EQ(gpu.Read(address), 7u);
  EXPECT_EQ(gpu.Read(address + unit - 4), 7u);
  EXPECT_EQ(gpu.Read(old_alias), 8u) << "the graph wrote memory swapped out";
}

CONFORMANCE_TEST(Graph, CopyNodeReadsWhatIsMappedAtTheLaunch) {
  NEEDS_GRAPHS();
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr from = gpu.Reserve(unit);
  const CUdeviceptr to = gpu.NewMapping(unit);
  gpu.MapAt(from, unit, gpu.Create(unit));
  gpu.Write(from, 1);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.srcPitch = copy.dstPitch = unit;
  copy.WidthInBytes = unit;
  copy.Height = copy.Depth = 1;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cuda().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy,
                                        gpu.context()),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(to), 1u);
  ASSERT_EQ(Cuda().cuMemUnmap(from, unit), CUDA_SUCCESS);
  gpu.MapAt(from, unit, gpu.Create(unit));
  gpu.Write(from, 2);
  gpu.Write(from + unit - 4, 3);
  ASSERT_EQ(Cuda().cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(to), 2u);
  EXPECT_EQ(gpu.Read(to + unit - 4), 3u);
}

CONFORMANCE_TEST(Graph, LaunchIntoUnmappedAddressesIsAnIllegalAddress) {
  NEEDS_GRAPHS();
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.NewMapping(unit);
  FillGraph graph;
  graph.Add(gpu, address, 7, 1);
  graph.Instantiate();
  ASSERT_EQ(Cuda().cuMemUnmap(address, unit), CUDA_SUCCESS);
  graph.Launch(nullptr);
  // The driver may name the fill that failed instead.
  EXPECT_THAT(Cuda().cuCtxSynchronize(),
              AnyOf(CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED));
  fflush(nullptr);
  _exit(Verdict());  // nothing can be destroyed in a dead context
}

CONFORMANCE_TEST(Graph, FillsThatMakeNoSenseAreRefused) {
  NEEDS_GRAPHS();
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  FillGraph graph;
  EXPECT_EQ(graph.TryAdd(gpu, {address, 0, 1, 3, 1, 1}),
            CUDA_ERROR_INVALID_VALUE);
  CUgraphNode node = nullptr;
  EXPECT_EQ(Cuda().cuGraphAddMemsetNode(&node, nullptr, nullptr, 0, nullptr,
                                        gpu.context()),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace fineserve::conformance
