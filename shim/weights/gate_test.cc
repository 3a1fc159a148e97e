#include "shim/weights/gate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/driver/entry_points.h"
#include "shim/weights/gated_calls.h"
#include "shim/weights/gated_lookup.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::shim {
namespace {

using driver::CUdeviceptr;
using driver::CUstream;
using driver::EntryPoints;
using process::Eventually;

constexpr uint64_t kPatientMs = 60'000;

class GateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(g_gate.Prepare()); }
  ~GateTest() override { g_gate.Open(); }
};

TEST_F(GateTest, CallWaitsBehindTheClosedGateAndIsCounted) {
  const uint64_t before = g_gate.waits();
  ASSERT_TRUE(g_gate.Close(kPatientMs));
  std::atomic<bool> passed{false};
  std::thread caller([&] { passed = g_gate.Pass([] { return true; }); });
  EXPECT_TRUE(Eventually([] { return g_gate.waiting() == 1; }));
  EXPECT_FALSE(passed);
  g_gate.Open();
  caller.join();
  EXPECT_TRUE(passed);
  EXPECT_EQ(g_gate.waits(), before + 1);
  EXPECT_EQ(g_gate.waiting(), 0u);
}

TEST_F(GateTest, ClosingWaitsForCallsThatAreInsideAndGivesUpWithTheGateOpen) {
  std::atomic<bool> inside{false}, go{false};
  std::thread caller([&] {
    g_gate.Pass([&] {
      inside = true;
      while (!go) std::this_thread::yield();
      return true;
    });
  });
  EXPECT_TRUE(Eventually([&] { return inside.load(); }));
  EXPECT_FALSE(g_gate.Close(0));
  EXPECT_FALSE(g_gate.is_closed());
  std::thread closer([] { EXPECT_TRUE(g_gate.Close(kPatientMs)); });
  EXPECT_TRUE(Eventually([] { return g_gate.is_closed(); }));
  go = true;
  closer.join();
  caller.join();
}

// A driver may call its own exported functions.
TEST_F(GateTest, CallWithinACallPasses) {
  std::thread closer;
  const bool passed = g_gate.Pass([&] {
    closer = std::thread([] { EXPECT_TRUE(g_gate.Close(kPatientMs)); });
    EXPECT_TRUE(Eventually([] { return g_gate.is_closed(); }));
    return g_gate.Pass([] { return true; });
  });
  closer.join();
  EXPECT_TRUE(passed);
}

// The thread that forks is the only one that the child has.
TEST_F(GateTest, ChildThatIsForkedWithinACallIsInsideUntilItLeaves) {
  bool is_awaited = false;
  const pid_t child = g_gate.Pass([&] {
    const pid_t forked = fork();
    if (forked == 0) {
      g_gate.RestartInChild();
      is_awaited = !g_gate.Close(0);
    }
    return forked;
  });
  if (child == 0) _exit(is_awaited && g_gate.Close(kPatientMs) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(GateTest, ThreadsThatHaveEndedAreNotWaitedFor) {
  for (int i = 0; i < 20; ++i) {
    std::thread([] { g_gate.Pass([] { return true; }); }).join();
  }
  EXPECT_TRUE(g_gate.Close(kPatientMs));
}

// It moves what is behind the gate.
TEST_F(GateTest, ThreadOfOursPassesTheClosedGate) {
  ASSERT_TRUE(g_gate.Close(kPatientMs));
  std::thread([] {
    t_gate_visitor.place = GateVisitor::kExempt;
    EXPECT_TRUE(g_gate.Pass([] { return true; }));
  }).join();
}

// While the gate is closed no call is between TryEnter and Leave.
TEST_F(GateTest, NoCallIsInsideWhileItIsClosed) {
  std::atomic<int> inside{0};
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      while (!ends) {
        g_gate.Pass([&] {
          inside.fetch_add(1, std::memory_order_relaxed);
          return inside.fetch_sub(1, std::memory_order_relaxed);
        });
        // On one processor, too, the closer comes to run often.
        if (calls.fetch_add(1, std::memory_order_relaxed) % 64 == 0) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (int round = 0; round < 500; ++round) {
    // Each round meets callers that run: they may all be late on a busy
    // machine.
    for (const uint64_t before = calls; calls == before;) {
      std::this_thread::yield();
    }
    ASSERT_TRUE(g_gate.Close(kPatientMs));
    const uint64_t seen = calls;
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(inside.load(), 0) << "round " << round;
    }
    EXPECT_LE(calls - seen, 4u) << "counted after Leave";
    g_gate.Open();
  }
  ends = true;
  for (std::thread& caller : callers) caller.join();
}

// True for a function that takes a stream to work on, or an address of device
// memory: it may touch memory until someone has said that it does not.
template <typename Function>
struct Suspicion;
template <typename... Arguments>
struct Suspicion<driver::CUresult (*EntryPoints::*)(Arguments...)> {
  static constexpr bool kValue = ((std::is_same_v<Arguments, CUstream> ||
                                   std::is_same_v<Arguments, CUdeviceptr>) ||
                                  ...);
};

struct Row {
  const char* symbol;
  bool suspicious;
};

constexpr Row kRows[] = {
#define FINESERVE_ROW(symbol, name, since, need, args) \
  {#symbol, Suspicion<decltype(&EntryPoints::symbol)>::kValue},
    FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
#define FINESERVE_ROW(plain, variant, name, since, args, call) \
  {#plain "_" #variant,                                        \
   Suspicion<decltype(&EntryPoints::plain##_##variant)>::kValue},
        FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
};

// They take a stream or an address, and touch no memory that can move.
const std::set<std::string> kTouchNothing = {
    // Frees and allocations in stream order: pools do not move.
    "cuMemFree_v2",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    // Mappings, and questions about addresses.
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemGetAccess",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMulticastBindAddr",
    "cuMemGetAddressRange_v2",
    "cuMemGetHandleForAddressRange",
    "cuMemAdvise",
    "cuMemAdvise_v2",
    "cuMemRangeGetAttribute",
    "cuMemRangeGetAttributes",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuPointerSetAttribute",
    "cuIpcGetMemHandle",
    "cuIpcCloseMemHandle",
    "cuMemPoolExportPointer",
    // Order between streams, and what they are.
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuStreamGetPriority",
    "cuStreamGetFlags",
    "cuStreamGetId",
    "cuStreamGetCtx",
    "cuStreamGetDevice",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCaptureInfo_v3",
    // Memory that the host reads by itself.
    "cuStreamAttachMemAsync",
    // Writes a descriptor on the host.
    "cuTensorMapEncodeTiled",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapReplaceAddress",
    // Handles and flags have the type of an address.
    "cuGraphInstantiateWithFlags",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemExportToShareableHandle",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMulticastBindMem",
    "cuMemPoolExportToShareableHandle",
    "cuMemPoolImportFromShareableHandle",
};

std::string WithoutVariant(std::string symbol) {
  for (const char* variant : {"_ptsz", "_ptds"}) {
    const size_t at = symbol.rfind(variant);
    if (at != std::string::npos) symbol.resize(at);
  }
  return symbol;
}

bool IsGated(const std::string& symbol) {
  return GatedForSymbol(symbol.c_str()) != GatedCall::kNone;
}

bool IsNamedAsATouch(const std::string& symbol) {
  for (const char* begin :
       {"cuMemcpy", "cuMemset", "cuLaunchKernel", "cuLaunchCooperative",
        "cuGraphLaunch", "cuStreamWriteValue", "cuStreamWaitValue",
        "cuStreamBatchMemOp", "cuMemPrefetch", "cuMemDiscard"}) {
    if (symbol.rfind(begin, 0) == 0) return true;
  }
  return false;
}

TEST(GatedCallsTest, EachEntryPointThatMayTouchMemoryIsGatedOrExcused) {
  for (const Row& row : kRows) {
    const bool excused = kTouchNothing.count(WithoutVariant(row.symbol)) != 0;
    if (row.suspicious || IsNamedAsATouch(row.symbol)) {
      EXPECT_NE(IsGated(row.symbol), excused)
          << row.symbol << " takes a stream or an address: gate it, or say in "
          << "kTouchNothing why not";
    } else {
      EXPECT_EQ(IsGated(row.symbol), false) << row.symbol;
    }
  }
}

TEST(GatedCallsTest, GatedCallsAndTheirVariantsAreEntryPoints) {
  std::set<std::string> known;
  for (const Row& row : kRows) known.insert(row.symbol);
#define FINESERVE_GATED(symbol) EXPECT_EQ(known.count(#symbol), 1u) << #symbol;
  FINESERVE_GATED_CALLS(FINESERVE_GATED)
#undef FINESERVE_GATED
}

TEST(GatedCallsTest, RequestMeansTheNewestAbiOfItsVersionAndStream) {
  constexpr uint64_t kPerThread =
      driver::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(GatedForRequest("cuMemcpyHtoD", 3020, 0),
            GatedCall::k_cuMemcpyHtoD_v2);
  EXPECT_EQ(GatedForRequest("cuMemcpyHtoD", 12000, kPerThread),
            GatedCall::k_cuMemcpyHtoD_v2_ptds);
  EXPECT_EQ(GatedForRequest("cuMemcpyBatchAsync", 12080, 0),
            GatedCall::k_cuMemcpyBatchAsync);
  EXPECT_EQ(GatedForRequest("cuMemcpyBatchAsync", 13000, 0),
            GatedCall::k_cuMemcpyBatchAsync_v2);
  EXPECT_EQ(GatedForRequest("cuLaunchKernel", 13000, kPerThread),
            GatedCall::k_cuLaunchKernel_ptsz);
  EXPECT_EQ(GatedForRequest("cuMemAlloc", 13000, 0), GatedCall::kNone);
  EXPECT_EQ(GatedForRequest("cuNoSuchThing", 13000, 0), GatedCall::kNone);
  // Before 3.2 addresses had 32 bits.
  EXPECT_EQ(GatedForRequest("cuMemcpyHtoD", 3000, 0), GatedCall::kNone);
}

}  // namespace

}  // namespace fineserve::shim
