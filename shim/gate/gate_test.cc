#include "shim/gate/gate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/driver/entry_points.h"
#include "shim/gate/gated_calls.h"
#include "shim/gate/gated_lookup.h"
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

TEST_F(GateTest, NeverClosesOnceAFunctionPassesBesideIt) {
  ASSERT_TRUE(g_gate.Close(kPatientMs));
  g_gate.Open();
  EXPECT_EQ(g_gate.kept_open_by(), nullptr);
  const pid_t child = fork();  // it is for the rest of a process's life
  if (child == 0) {
    g_gate.RestartInChild();
    g_gate.KeepOpen("cuMemcpy");
    const bool closed = g_gate.Close(kPatientMs) || g_gate.is_closed();
    _exit(!closed && g_gate.kept_open_by() != nullptr ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(GateTest, StaysOpenWhileAGraphIsCaptured) {
  const auto stream = reinterpret_cast<CUstream>(1000);
  const auto other = reinterpret_cast<CUstream>(2000);
  g_gate.CaptureBegins(stream);
  g_gate.CaptureEnds(other);
  EXPECT_FALSE(g_gate.Close(kPatientMs));
  EXPECT_FALSE(g_gate.is_closed());
  g_gate.CaptureEnds(stream);
  g_gate.CaptureEnds(stream);
  EXPECT_TRUE(g_gate.Close(kPatientMs));
  g_gate.Open();
  // Null names a different stream in each thread.
  g_gate.CaptureBegins(nullptr);
  std::thread([] { g_gate.CaptureEnds(nullptr); }).join();
  EXPECT_FALSE(g_gate.Close(kPatientMs));
  g_gate.CaptureEnds(nullptr);
  EXPECT_TRUE(g_gate.Close(kPatientMs));
}

TEST_F(GateTest, CallsEndWithoutTheirWorkOnceItIsClosedForGood) {
  const pid_t child = fork();
  if (child == 0) {
    g_gate.RestartInChild();
    bool right = g_gate.Close(kPatientMs);
    std::thread waits([&] {
      right = g_gate.Pass([] { return 1; }, /*never=*/2) == 2 && right;
    });
    while (g_gate.waiting() == 0) std::this_thread::yield();
    g_gate.CloseForGood();
    waits.join();
    right = g_gate.Pass([] { return 1; }, /*never=*/2) == 2 && right;
    _exit(right && g_gate.waiting() == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
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

// In the child, the thread that forked is the only one.
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

// Our threads move what is behind the gate.
TEST_F(GateTest, ThreadOfOursPassesTheClosedGate) {
  ASSERT_TRUE(g_gate.Close(kPatientMs));
  std::thread([] {
    t_gate_visitor.place = GateVisitor::kExempt;
    EXPECT_TRUE(g_gate.Pass([] { return true; }));
  }).join();
}

// While the gate is closed, no call is between TryEnter and Leave.
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
        // Lets the closer run often even on one processor.
        if (calls.fetch_add(1, std::memory_order_relaxed) % 64 == 0) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (int round = 0; round < 500; ++round) {
    // Waits until the callers run in this round, because on a busy machine all
    // of them may be late.
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
// memory. Such a function may touch memory until it is listed as not touching
// it.
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
  const char* name;
  bool suspicious;
};

constexpr Row kRows[] = {
#define FINESERVE_ROW(symbol, name, since, need, args) \
  {#symbol, #name, Suspicion<decltype(&EntryPoints::symbol)>::kValue},
    FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
#define FINESERVE_ROW(plain, variant, name, since, args, call) \
  {#plain "_" #variant, #name,                                 \
   Suspicion<decltype(&EntryPoints::plain##_##variant)>::kValue},
        FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
};

// Functions that take a stream or an address, but touch no memory that can
// move.
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
    // Order between streams, and properties of streams.
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
    "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCaptureInfo_v3",
    // Memory that the host itself reads.
    "cuStreamAttachMemAsync",
    // Writes a descriptor on the host.
    "cuTensorMapEncodeTiled",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapReplaceAddress",
    // Handles and flags that have the type of an address.
    "cuGraphInstantiateWithFlags",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemExportToShareableHandle",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMulticastBindMem",
    "cuMemPoolExportToShareableHandle",
    "cuMemPoolImportFromShareableHandle",
    // These are in cuda.h but not in our list. Nodes of graphs run when the
    // graph is launched.
    "cuGraphAddMemFreeNode",
    "cuGraphUpload",
    // Arrays, and objects that other interfaces map, stay on the device.
    "cuMemcpyAtoA",
    "cuMemcpyAtoH",
    "cuMemcpyAtoHAsync",
    "cuMemcpyHtoA",
    "cuMemcpyHtoAAsync",
    "cuMemMapArrayAsync",
    "cuGraphicsMapResources",
    "cuGraphicsUnmapResources",
    "cuTexRefSetAddress",
    "cuTexRefSetAddress2D",
    "cuSignalExternalSemaphoresAsync",
    "cuWaitExternalSemaphoresAsync",
    "cuStreamUpdateCaptureDependencies",
    "cuStreamGetAttribute",
    "cuStreamSetAttribute",
    "cuStreamCopyAttributes",
    "cuStreamGetGreenCtx",
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

// Returns the name without its ABI number and its stream variant.
std::string NameOf(const std::string& symbol) {
  const std::string plain = WithoutVariant(symbol);
  const size_t at = plain.rfind("_v");
  return at == std::string::npos ? plain : plain.substr(0, at);
}

std::string WithoutComments(std::string text) {
  for (size_t at = 0; (at = text.find("/*", at)) != std::string::npos;) {
    text.erase(at, text.find("*/", at) + 2 - at);
  }
  return text;
}

// Returns the names of the functions which a header declares and which take a
// stream, take an address, or are named as a touch. 32-bit forms do not touch
// memory here.
std::set<std::string> SuspectsIn(const std::string& header) {
  static const std::regex touch(R"(\bCU(stream|deviceptr) [^*])");
  const std::string declaration = "CUresult CUDAAPI ";
  std::set<std::string> suspects;
  for (size_t at = 0; (at = header.find(declaration, at)) != header.npos;) {
    at += declaration.size();
    const size_t open = header.find('(', at), end = header.find(';', at);
    const std::string arguments = header.substr(open, end - open);
    std::string name = NameOf(header.substr(at, open - at));
    if (arguments.find("_v1 ") != std::string::npos) continue;
    if (IsNamedAsATouch(name.c_str()) || std::regex_search(arguments, touch))
      suspects.insert(std::move(name));
  }
  return suspects;
}

TEST(GatedCallsTest, ListHasWhatCudaHDeclares) {
  std::ifstream file(std::string(FINESERVE_CUDA_INCLUDE) + "/cuda.h");
  if (!file) GTEST_SKIP() << "no CUDA toolkit";
  const std::string header = WithoutComments(
      {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  std::set<std::string> names, symbols, gated;
  for (const Row& row : kRows) {
    names.insert(row.name);
    symbols.insert(row.symbol);
    if (IsGated(row.symbol)) gated.insert(row.name);
  }
  const std::set<std::string> suspects = SuspectsIn(header);
  EXPECT_GT(suspects.size(), 100u);
  for (const std::string& name : suspects) {
    EXPECT_TRUE(names.count(name) != 0 || kTouchNothing.count(name) != 0)
        << name << " may touch memory: list it, or say in kTouchNothing why it "
        << "cannot";
  }
  // The ABI that a newly built program gets.
  const std::regex renamed(
      R"(#\s*define\s+(cu\w+)\s+(__CUDA_API_PT(SZ|DS)\()?(cu\w+))");
  size_t compared = 0;
  for (auto it = std::sregex_iterator(header.begin(), header.end(), renamed);
       it != std::sregex_iterator(); ++it) {
    if (gated.count((*it)[1]) == 0) continue;
    const std::string plain = (*it)[4];
    const std::string kind = (*it)[3];
    EXPECT_EQ(symbols.count(plain), 1u) << plain;
    if (!kind.empty()) {
      const std::string variant = kind == "SZ" ? "_ptsz" : "_ptds";
      EXPECT_EQ(symbols.count(plain + variant), 1u) << plain << variant;
    }
    ++compared;
  }
  EXPECT_GT(compared, 40u);
}

TEST(GatedCallsTest, LaterAbiIsSeenByItsSymbol) {
  for (const char* later : {"cuMemcpyHtoD_v9", "cuGraphLaunch_v2_ptsz",
                            "cuGetProcAddress_v3", "cuMemAlloc_v3"}) {
    EXPECT_TRUE(IsLaterAbi(later)) << later;
  }
  for (const char* other :
       {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds", "cuMem_v2",
        "cuMemAlloc_v2", "cuGetProcAddress_v2", "cudaMemcpy_v2", "strlen"}) {
    EXPECT_FALSE(IsLaterAbi(other)) << other;
  }
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
