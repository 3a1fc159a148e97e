// Each test checks, under its number, something that earlier interposers got
// wrong. Pitfall 8 (host memory) is in redirect/virtual_memory_test.cc; 10
// (unmapping waits) is there, in redirect/releaser_test.cc and in
// tests/integration/slabs/deferred_free_test.cc; 11 (the memory behind an
// address) is in redirect/releaser_test.cc. 12 (memory info), 13 (a dead owner)
// and 14 (devices by UUID) need several processes and a device:
// tests/integration/slabs/pitfall_test.cc.

#include <gmock/gmock.h>

#include "shim/testdata/process_fixture.h"

namespace fineserve::shim {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Pitfall = ProcessTest;

TEST_F(Pitfall, Number1BothResolversGiveTheHookAlsoThroughThemselves) {
  EXPECT_EQ(RunCuda({"resolve", "cuMemAlloc", "12000", "resolve1", "cuMemAlloc",
                     "12000", "resolve", "cuGetProcAddress", "11030", "resolve",
                     "cuGetProcAddress", "12000"})
                .out,
            "resolve shim\nresolve shim\nresolve shim\nresolve shim\n");
}

TEST_F(Pitfall, Number2AbiOfAnotherVersionIsNotOurs) {
  EXPECT_EQ(RunCuda({"resolve", "cuMemAlloc", "2000"}).out, "resolve null\n");
}

TEST_F(Pitfall, Number3FunctionsThatTheDriverLacksAreNotGivenOut) {
  driver_ = "olddriver";
  EXPECT_EQ(
      RunDlsym({"load", "default", "cuMemAlloc_v2", "driver", "cuMemAlloc_v2",
                "default", "cuMemAllocAsync", "driver", "cuMemAllocAsync",
                "next", "cuMemAllocAsync", "default", "cuGetProcAddress_v2"}),
      "loaded yes\nshim\nshim\nnull\nnull\nnull\nnull\n");
}

// Asks for dlsym by each version that glibc has had for it, and by none.
TEST_F(Pitfall, Number4NoVersionOfTheLoadersSymbolsIsAssumed) {
  const std::string want = "shim\nshim\nshim\n";
  EXPECT_EQ(RunDlsym({"versioned", "GLIBC_2.2.5", "versioned", "GLIBC_2.34",
                      "default", "dlsym"}),
            want);
}

TEST_F(Pitfall, Number5NextMeansNextAfterTheCaller) {
  EXPECT_EQ(RunDlsym({"load", "probe", "cuMemAlloc_v2", "probe", "malloc"},
                     {"libfineserve_shim.so", "libshim_probe.so"}),
            "loaded yes\ndriver\nlibc\n");
}

TEST_F(Pitfall, Number6ProgramsWithoutCudaRunUndisturbed) {
  const Ran ran = Run("/bin/true", {}, {"libfineserve_shim.so"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
}

TEST_F(Pitfall, Number7SeveralPreloadsAndChildrenThatInheritThem) {
  StartDaemon();
  for (const Words& preloads :
       {Words{"libfineserve_shim.so", "libshim_malloc_interposer.so",
              "libshim_dlsym_forwarder.so"},
        Words{"libshim_malloc_interposer.so", "libfineserve_shim.so",
              "libshim_dlsym_forwarder.so"}}) {
    const Ran ran = Run("shim_cuda_program",
                        {"lookup", "cuMemAlloc_v2", "scoped", "4194304", "free",
                         "exec", "scoped", "4194304"},
                        preloads);
    EXPECT_EQ(ran.out, "lookup shim\nalloc 0 shared\nfree 0\nalloc 0 shared\n");
  }
}

TEST_F(Pitfall, Number9LegacyIpcOfSlabsIsRefusedWithOneWarningOthersPass) {
  StartDaemon();
  const Ran ran = RunCuda(
      {"scoped", "4194304", "ipc", "ipc", "free", "alloc", "4194304", "ipc"});
  EXPECT_EQ(ran.out,
            "alloc 0 shared\nipc 1\nipc 1\nfree 0\nalloc 0 own\nipc 0\n");
  const size_t first = ran.err.find("cuIpcGetMemHandle refused");
  EXPECT_NE(first, std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("refused", first + 30), std::string::npos);
}

TEST_F(Pitfall, Number10UnmappingOfAFreeInStreamOrderWaitsForItsEvent) {
  StartDaemon();
  EXPECT_EQ(
      RunCuda({"scoped", "4194304", "asyncfree", "unmaps", "asyncfree"}).out,
      "alloc 0 shared\nasyncfree 0\nunmaps 1\nasyncfree 0\n");
  EXPECT_TRUE(daemon_->GetsBack(100));
}

TEST_F(Pitfall, Number11NothingIsRemappedBehindALivingAddress) {
  StartDaemon();
  const Ran ran = RunCuda({"scoped", "4194304", "unmaps", "alloc", "8388608",
                           "closeall", "scoped", "4194304", "unmaps"});
  EXPECT_THAT(ran.out, StartsWith("alloc 0 shared\nunmaps 0\n"));
  EXPECT_THAT(ran.out, HasSubstr("unmaps 0\n"));
}

TEST_F(Pitfall, Number12MemoryInfoIsTheDriversOwnWithNullArgumentsToo) {
  StartDaemon();
  EXPECT_EQ(
      RunCuda({"lookup", "cuMemGetInfo_v2", "scoped", "4194304", "meminfo"})
          .out,
      "lookup driver\nalloc 0 shared\nmeminfo 0\n");
}

TEST_F(Pitfall, Number14NoSignalHandlerIsTouched) {
  StartDaemon();
  EXPECT_EQ(
      RunCuda({"scoped", "4194304", "free", "alloc", "4194304", "signals"}).out,
      "alloc 0 shared\nfree 0\nalloc 0 own\nsignals 0 heard 2 blocked 0\n");
}

#ifdef LIBASAN
TEST_F(Pitfall, Number15AsanHostNeedsItsRuntimeFirst) {
  StartDaemon();
  const Words words = {"scoped", "4194304", "callers",
                       "free",   "lookup",  "cuMemAlloc_v2"};
  const Ran good =
      Run("shim_asan_program", words, {LIBASAN, "libfineserve_shim.so"});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(good.out, "alloc 0 shared\ncallers whole\nfree 0\nlookup shim\n");
  const Ran bad = Run("shim_asan_program", words, {"libfineserve_shim.so"});
  EXPECT_NE(bad.status, 0);
  EXPECT_THAT(bad.err, HasSubstr("ASan runtime does not come first"));
}
#else
TEST_F(Pitfall, Number15AsanHostNeedsItsRuntimeFirst) {
  GTEST_SKIP() << "this compiler has no shared ASan runtime";
}
#endif

using Host = ProcessTest;

TEST_F(Host, ThreadsThatAllStartWithKvShareOneConnection) {
  StartDaemon();
  EXPECT_EQ(RunCuda({"threads", "16"}).out, "threads 16\n");
  EXPECT_EQ(daemon_->connections(), 1);
  EXPECT_TRUE(daemon_->GetsBack(100));
}

TEST_F(Host, PythonReachesTheHookThroughCtypes) {
  constexpr char kPython[] = "/usr/bin/python3";
  if (access(kPython, X_OK) != 0) GTEST_SKIP() << "no " << kPython;
  StartDaemon();
  const Ran ran = Run(kPython,
                      {"-c",
                       "import ctypes\n"
                       "cuda = ctypes.CDLL('libcuda.so.1')\n"
                       "kv = ctypes.CDLL(None)\n"
                       "at = ctypes.c_ulonglong()\n"
                       "kv.fs_kv_begin()\n"
                       "r = cuda.cuMemAlloc_v2(ctypes.byref(at),"
                       " ctypes.c_size_t(4 << 20))\n"
                       "kv.fs_kv_end()\n"
                       "print(r, hex(at.value >> 40),"
                       " cuda.cuMemFree_v2(at))\n"},
                      {"libfineserve_shim.so"});
  EXPECT_EQ(ran.out, "0 0x50 0\n") << ran.err;
  EXPECT_TRUE(daemon_->GetsBack(100));
}

}  // namespace
}  // namespace fineserve::shim
