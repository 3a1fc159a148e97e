#include <gmock/gmock.h>

#include <algorithm>

#include "shim/testdata/glibc_version.h"
#include "shim/testdata/process_fixture.h"

namespace fineserve::shim {
namespace {

using Dlopen = ProcessTest;
using Dlsym = ProcessTest;
using Fork = ProcessTest;
using Host = ProcessTest;
using Paths = ProcessTest;
using Pitfall = ProcessTest;
using ProcAddress = ProcessTest;
using StackHost = ProcessTest;
using WithDaemon = ProcessTest;
using WithoutDaemon = ProcessTest;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Tests of the preload library in separate programs, on the null driver.

TEST_F(WithoutDaemon, CudaWorksAndOneLineSaysWhyNotMore) {
  const Ran ran = RunCuda(
      {"alloc", "4194304", "alloc", "4194304", "scoped", "4194304", "free"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "alloc 0 own\nalloc 0 own\nalloc 0 own\nfree 0\n");
  EXPECT_THAT(ran.err, StartsWith("fineserve: no daemon at "));
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
}

TEST_F(WithoutDaemon, SmallAllocationsAloneSayNothing) {
  const Ran ran = RunCuda({"small", "1000", "scoreboard"});
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(ran.out, "scoreboard none\n");
}

TEST_F(WithoutDaemon, SmallAllocationsAreCountedButNeverUnwound) {
  const Ran ran = RunCuda(
      {"small", "1000", "thread", "500", "alloc", "4194304", "scoreboard"});
  EXPECT_THAT(
      ran.out,
      HasSubstr("scoreboard small 1500 large 1 stacks 1 scoreboards 1\n"));
}

TEST_F(WithoutDaemon, DisabledIsSilentAndHasNoScoreboard) {
  StartDaemon();
  const Ran ran = RunCuda({"scoped", "4194304", "free", "scoreboard"},
                          {"FINESERVE_DISABLE=1"});
  EXPECT_EQ(ran.out, "alloc 0 own\nfree 0\nscoreboard none\n");
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(daemon_->connections(), 0);
}

TEST_F(WithDaemon, ScopedAllocationIsSharedAndComesBackAtFree) {
  StartDaemon();
  const Ran ran = RunCuda({"scoped", "4194304", "inside", "free", "unmaps"});
  EXPECT_EQ(ran.out, "alloc 0 shared\ninside 1\nfree 0\nunmaps 1\n");
  EXPECT_EQ(ran.err, "");
  EXPECT_TRUE(daemon_->GetsBack(100));
  EXPECT_THAT(daemon_->last_hello().engine_name,
              StartsWith("shim_cuda_progr-"));
}

TEST_F(WithDaemon, DeclaredSizeOfTheEnvironmentIsShared) {
  StartDaemon({.declared = {8 << 20}});
  const Ran ran = RunCuda({"alloc", "4194304", "alloc", "8388608"},
                          {"FINESERVE_KV_SIZES=4MiB"});
  EXPECT_EQ(ran.out, "alloc 0 shared\nalloc 0 own\n");
}

TEST_F(WithDaemon, ExhaustedPoolIsOutOfMemoryToTheProgram) {
  StartDaemon({.slab_count = 1});
  EXPECT_EQ(RunCuda({"scoped", "8388608"}).out, "alloc 2 own\n");
}

TEST_F(WithDaemon, ProgramThatClosesEverythingLosesTheDaemonOnly) {
  StartDaemon();
  const Ran ran =
      RunCuda({"scoped", "4194304", "closeall", "free", "scoped", "4194304"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, StartsWith("alloc 0 shared\nfree 0\nalloc 0 "));
  EXPECT_THAT(ran.err, HasSubstr("closed by this program"));
}

TEST_F(WithDaemon, ExecStartsAfreshWithoutOurDescriptors) {
  StartDaemon();
  const Ran ran = RunCuda(
      {"scoped", "4194304", "sockets", "exec", "sockets", "scoped", "4194304"});
  EXPECT_EQ(ran.out, "alloc 0 shared\nsockets 1\nsockets 0\nalloc 0 shared\n");
  EXPECT_EQ(daemon_->connections(), 2);
}

TEST_F(Fork, ChildPassesThroughAndParentsLeaseStays) {
  StartDaemon();
  const Ran ran = RunCuda({"scoped", "4194304", "fork", "sockets", "free",
                           "unmaps", "scoped", "4194304", "scoreboard"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out,
            "alloc 0 shared\nsockets 0\nfree 0\nunmaps 0\nalloc 0 own\n"
            "scoreboard small 0 large 1 stacks 1 scoreboards 1\n");
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(daemon_->free_slabs(), 99u);
  EXPECT_EQ(daemon_->connections(), 1);
}

TEST_F(Fork, ChildOfAParentThatNeverAllocatedIsAnEngineLikeAnyOther) {
  StartDaemon();
  EXPECT_EQ(RunCuda({"small", "10", "fork", "scoped", "4194304"}).out,
            "alloc 0 shared\n");
}

TEST_F(Fork, ChildOfAParentThatRegisteredAndNeverAllocatedHasNoView) {
  StartDaemon();
  EXPECT_THAT(RunCuda({"register", "fork", "progress", "1", "sockets"}).out,
              EndsWith("\nprogress 7\nsockets 0\n"));
}

// An example is a compiler's worker, which inherits the engine's environment.
TEST_F(Fork, RequiredViewIsNotForWhatAnEngineStarts) {
  const char* const required = "FINESERVE_VIEW=required";
  const Ran engine = RunCuda(
      {"progress", "2", "alloc", "4194304", "fork", "exec", "alloc", "4194304"},
      {required});
  const Ran stock = RunCuda({"fork", "exec", "alloc", "4194304"}, {required});
  EXPECT_EQ(engine.out, "progress 0\nalloc 0 own\nalloc 0 own\n");
  EXPECT_EQ(stock.out, "alloc 800 own\n");
  EXPECT_THAT(stock.err, HasSubstr("has replaced its block pool"));
}

TEST_F(Fork, ChildsStacksAreCapturedToo) {
  EXPECT_EQ(RunCuda({"alloc", "4194304", "callers", "fork", "alloc", "4194304",
                     "callers"})
                .out,
            "alloc 0 own\ncallers whole\nalloc 0 own\ncallers whole\n");
}

TEST_F(Fork, NeverHangsOnALockThatAnotherThreadHeld) {
  StartDaemon();
  const Ran ran = RunCuda({"scoped", "4194304", "storm", "50"});
  EXPECT_EQ(ran.out, "alloc 0 shared\nstorm 50\n");
}

TEST_F(ProcAddress, IsSubstitutedOnlyWhereTheAbiIsOurs) {
  struct {
    const char* name;
    const char* version;
    const char* want;
  } const cases[] = {
      {"cuMemAlloc", "3020", "shim"},
      {"cuMemAlloc", "13000", "shim"},
      {"cuMemAlloc", "2000", "null"},
      {"cuMemFree", "3020", "shim"},
      {"cuGetProcAddress", "11030", "shim"},
      {"cuGetProcAddress", "12000", "shim"},
      {"cuMemCreate", "10020", "shim"},
      {"cuMemSetAccess", "10020", "driver"},
      {"cuDeviceGet", "2000", "driver"},
      {"cuMemAlloc_v2", "13000", "null"},
      {"", "0", "null"},
  };
  for (const auto& c : cases) {
    const std::string want = std::string("resolve ") + c.want + "\n";
    EXPECT_EQ(RunCuda({"resolve", c.name, c.version}).out, want) << c.name;
    EXPECT_EQ(RunCuda({"resolve1", c.name, c.version}).out, want) << c.name;
  }
}

TEST_F(ProcAddress, DisabledGivesTheDriversOwn) {
  EXPECT_EQ(
      RunCuda({"resolve", "cuMemAlloc", "3020"}, {"FINESERVE_DISABLE=1"}).out,
      "resolve driver\n");
}

TEST_F(Dlsym, WithoutDriverHooksAreNotRevealed) {
  EXPECT_EQ(RunDlsym({"default", "cuMemAlloc_v2", "error", "self",
                      "cuGetProcAddress_v2", "next", "cuMemFree_v2", "error"}),
            "null\nerror yes\nnull\nnull\nerror yes\n");
}

TEST_F(Dlsym, WithDriverEveryHandleLeadsToTheHook) {
  EXPECT_EQ(
      RunDlsym({"load", "driver", "cuMemAlloc_v2", "default", "cuMemAlloc_v2",
                "self", "cuMemFree_v2", "next", "cuMemAlloc_v2", "driver",
                "cuGetProcAddress_v2", "error"}),
      "loaded yes\nshim\nshim\nshim\nshim\nshim\nerror no\n");
}

TEST_F(Dlsym, DriverInALocalScopeIsHookedByItsHandle) {
  EXPECT_EQ(RunDlsym({"loadlocal", "driver", "cuMemAlloc_v2", "driver",
                      "cuMemSetAccess"}),
            "loaded yes\nshim\ndriver\n");
}

TEST_F(Dlsym, OtherNamesAndFailuresAreLibcs) {
  EXPECT_EQ(RunDlsym({"default", "malloc", "default", "no_such_name", "error",
                      "next", "malloc", "default", "cuNoSuchName"}),
            "libc\nnull\nerror yes\nlibc\nnull\n");
}

TEST_F(Dlsym, ItsOwnNameIsAnsweredWithTheHook) {
  EXPECT_EQ(RunDlsym({"default", "dlsym", "libc", "dlsym"}), "shim\nshim\n");
}

TEST_F(Dlsym, ConstructorOfAnotherPreloadMayAskFirst) {
  for (const Words& preloads :
       {Words{"libshim_probe.so", "libfineserve_shim.so"},
        Words{"libfineserve_shim.so", "libshim_probe.so"}}) {
    EXPECT_EQ(RunDlsym({"early", "malloc", "early", "cuMemAlloc_v2", "early",
                        "dlsym"},
                       preloads),
              "libc\nnull\nshim\n");
  }
}

TEST_F(Dlsym, NextOfALibraryBeforeTheShimIsTheHook) {
  EXPECT_EQ(
      RunDlsym({"probe", "cuMemAlloc_v2", "load", "probe", "cuMemAlloc_v2",
                "probe", "dlsym", "probe", "malloc", "probedlsym"},
               {"libshim_probe.so", "libfineserve_shim.so"}),
      "null\nloaded yes\nshim\nshim\nlibc\nshim\n");
}

TEST_F(Dlsym, NextOfALibraryBehindTheShimIsWhatComesBehindIt) {
  EXPECT_EQ(
      RunDlsym({"probe", "cuMemAlloc_v2", "load", "probe", "cuMemAlloc_v2",
                "probe", "dlsym", "probe", "malloc", "probedlsym"},
               {"libfineserve_shim.so", "libshim_probe.so"}),
      "null\nloaded yes\ndriver\nlibc\nlibc\nlibc\n");
}

TEST_F(Dlsym, SharesAProcessWithAMallocInterposerInEitherOrder) {
  for (const Words& preloads :
       {Words{"libshim_malloc_interposer.so", "libfineserve_shim.so"},
        Words{"libfineserve_shim.so", "libshim_malloc_interposer.so"}}) {
    EXPECT_EQ(RunDlsym({"malloc", "load", "driver", "cuMemAlloc_v2"}, preloads),
              "malloc interposed\nloaded yes\nshim\n");
  }
}

TEST_F(Dlsym, SharesAProcessWithADlsymForwarderInEitherOrder) {
  for (const Words& preloads :
       {Words{"libshim_dlsym_forwarder.so", "libfineserve_shim.so"},
        Words{"libfineserve_shim.so", "libshim_dlsym_forwarder.so"}}) {
    EXPECT_EQ(RunDlsym({"load", "driver", "cuMemAlloc_v2", "default", "malloc"},
                       preloads),
              "loaded yes\nshim\nlibc\n");
  }
}

TEST_F(Dlopen, KeepsTheCallerWhoseRunpathIsSearched) {
  for (const Words& preloads :
       {Words{"libshim_runpath.so"},
        Words{"libshim_runpath.so", "libfineserve_shim.so"},
        Words{"libfineserve_shim.so", "libshim_runpath.so"}}) {
    EXPECT_EQ(RunDlsym({"runpath", "libshim_hidden.so", "error", "runpath",
                        "libno_such.so", "error"},
                       preloads),
              "opened yes\nerror no\nopened no\nerror yes\n");
  }
}

TEST_F(Dlopen, ItsNameIsAnsweredWithTheHookByEveryLookup) {
  EXPECT_EQ(RunDlsym({"default", "dlopen", "libc", "dlopen", "default",
                      "dlmopen", "libc", "dlmopen"}),
            "shim\nshim\nshim\nshim\n");
  EXPECT_EQ(RunDlsym({"probe", "dlopen", "probe", "dlmopen"},
                     {"libshim_probe.so", "libfineserve_shim.so"}),
            "shim\nshim\n");
  EXPECT_EQ(RunDlsym({"probe", "dlopen"},
                     {"libfineserve_shim.so", "libshim_probe.so"}),
            "libc\n");
}

// With RTLD_DEEPBIND left on, the library sees the driver before the shim and
// would bypass the hooks.
TEST_F(Dlopen, DeepbindIsTakenOffCountedAndSaidOnce) {
  const std::string library = Lib("libshim_deepbind.so");
  EXPECT_EQ(Run("shim_cuda_program", {"deepbind", library}, {}).out,
            "deepbind driver libc\n");
  const Ran ran = RunCuda(
      {"deepbind", library, "deepbind", library, "alloc", "4194304", "loads"});
  EXPECT_THAT(ran.out, StartsWith("deepbind shim shim\ndeepbind shim shim\n"));
  EXPECT_THAT(ran.out, HasSubstr("deepbind 2 foreign 0\n"));
  const size_t first = ran.err.find("without RTLD_DEEPBIND");
  EXPECT_NE(first, std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("without RTLD_DEEPBIND", first + 1),
            std::string::npos);
}

TEST_F(Dlopen, DeepbindStaysWhereTheUserWantsItOrTheShimIsOff) {
  const std::string library = Lib("libshim_deepbind.so");
  for (const char* setting :
       {"FINESERVE_KEEP_DEEPBIND=1", "FINESERVE_DISABLE=1"}) {
    const Ran ran = RunCuda({"deepbind", library}, {setting});
    EXPECT_EQ(ran.out, "deepbind driver libc\n") << setting;
    EXPECT_EQ(ran.err, "");
  }
}

TEST_F(Dlopen, NamespaceOfItsOwnIsDetectedAndCounted) {
  const Ran ran = RunCuda({"foreign", "alloc", "4194304", "loads"});
  EXPECT_THAT(ran.out, StartsWith("foreign yes\n"));
  EXPECT_THAT(ran.out, HasSubstr("deepbind 0 foreign 1\n"));
}

// An unwinder might keep a pipe to ask the kernel whether an address can be
// read. If the program closes the pipe's descriptors and opens files that get
// their numbers, the unwinder would write into these files.
TEST_F(StackHost, DescriptorsOfAProgramThatClosedAllAreLeftAlone) {
  EXPECT_EQ(
      Run("shim_stack_host_program", {"closed"}, {"libfineserve_shim.so"}).out,
      "closed kept\n");
}

// The other thread holds the loader's lock while the constructor waits.
TEST_F(StackHost, FirstLargeAllocationDoesNotWaitForALibrarysConstructor) {
  StartDaemon();
  const Ran ran = Run("shim_stack_host_program",
                      {"constructor", Lib("libshim_waiting_constructor.so")},
                      {"libfineserve_shim.so"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "constructor done\n");
}

// The loader reuses a loaded library wherever its soname is needed, in any
// scope. So the program's libraries would get any library that we load, even
// with RTLD_LOCAL.
TEST_F(StackHost, ProgramsLibrariesGetTheirOwnDependencies) {
  const std::string library = Lib("libshim_own_dependencies.so");
  EXPECT_EQ(
      Run("shim_stack_host_program", {"own", library}, {"libfineserve_shim.so"})
          .out,
      "own 2\n");
}

TEST_F(Paths, ScoreboardSaysByWhichChannelAHookWasReached) {
  const struct {
    const char* command;
    const char* argument;
    const char* want;
  } cases[] = {
      {"lookup", "cuMemFree_v2", "uses 1 0 0 0 0 0 0\n"},
      {"byhandle", "cuMemFree_v2", "uses 0 1 0 0 0 0 0\n"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(RunCuda({c.command, c.argument, "alloc", "4194304", "uses",
                         "cuMemFree_v2"})
                    .out,
                HasSubstr(c.want))
        << c.command;
  }
  EXPECT_THAT(RunCuda({"resolve", "cuMemFree", "3020", "resolve1", "cuMemFree",
                       "3020", "alloc", "4194304", "uses", "cuMemFree_v2"})
                  .out,
              HasSubstr("uses 0 0 0 0 1 1 0\n"));
}

TEST_F(Paths, HookBoundByItsSymbolWasCalledAndNeverAnsweredWith) {
  EXPECT_THAT(RunCuda({"alloc", "4194304", "uses", "cuMemAlloc_v2"}).out,
              HasSubstr("uses 0 0 0 0 0 0 1\n"));
}

// Each test checks, under its number, a pitfall of earlier interposers. Pitfall
// 8 (host memory) is in redirect/virtual_memory_test.cc; 10 (unmapping waits)
// is in that file, in redirect/releaser_test.cc and in
// tests/integration/slabs/deferred_free_test.cc; 11 (the memory behind an
// address) is in redirect/releaser_test.cc. 12 (memory info), 13 (a dead owner)
// and 14 (devices by UUID) need several processes and a device:
// tests/integration/slabs/pitfall_test.cc.

TEST_F(Pitfall, Number1BothResolversGiveTheHookAlsoThroughThemselves) {
  EXPECT_EQ(RunCuda({"resolve", "cuMemAlloc", "12000", "resolve1", "cuMemAlloc",
                     "12000", "resolve", "cuGetProcAddress", "11030", "resolve",
                     "cuGetProcAddress", "12000"})
                .out,
            "resolve shim\nresolve shim\nresolve shim\nresolve shim\n");
}

TEST_F(Pitfall, Number2AbiOfAnotherVersionIsNotOurs) {
  EXPECT_EQ(RunCuda({"resolve", "cuMemAlloc", "2000"}).out, "resolve null\n");
  const Words later = {"resolve", "cuMemAlloc", "99000",
                       "resolve", "cuMemFree",  "99000"};
  EXPECT_EQ(RunCuda(later).out, "resolve driver\nresolve shim\n");
}

TEST_F(Pitfall, Number2LaterAbiOfAGatedCallPassesAndItsProcessIsNotEvicted) {
  const Words known = {"resolve", "cuMemcpy",       "13000",
                       "resolve", "cuLaunchKernel", "99000"};
  const Words evictable = {"FINESERVE_EVICT=auto"};
  const Ran same = RunCuda(known, evictable);
  EXPECT_EQ(same.out, "resolve shim\nresolve shim\n");
  EXPECT_EQ(same.err, "");
  for (const std::string name : {"cuMemcpy", "cuMemAlloc", "cuMemcpyNew"}) {
    const Words asked = {"resolve", name, "99000"};
    const Words called = {"call", name, "99000", "call", name, "99000"};
    const Ran resolved = RunCuda(asked, evictable);
    EXPECT_EQ(resolved.out, "resolve shim\n");
    EXPECT_EQ(resolved.err, "") << "the runtime asks for more than it calls";
    const Ran ran = RunCuda(called, evictable);
    const Ran plain = RunCuda(called);
    EXPECT_EQ(ran.out, plain.out);
    EXPECT_THAT(ran.err, HasSubstr("no longer evicted: it calls a form of " +
                                   name + " that is later than CUDA 13.0"));
    EXPECT_EQ(plain.err, "");
    EXPECT_EQ(RunCuda(asked).out, "resolve driver\n");
  }
  const Words symbols = {"lookup", "cuMemcpy_v9", "lookup", "cuMemcpyNew"};
  EXPECT_EQ(RunCuda(symbols, evictable).out, "lookup shim\nlookup shim\n");
  EXPECT_EQ(RunCuda(symbols).out, "lookup driver\nlookup driver\n");
}

TEST_F(Pitfall, Number3FunctionsThatTheDriverLacksAreNotGivenOut) {
  driver_ = "olddriver";
  EXPECT_EQ(
      RunDlsym({"load", "default", "cuMemAlloc_v2", "driver", "cuMemAlloc_v2",
                "default", "cuMemAllocAsync", "driver", "cuMemAllocAsync",
                "next", "cuMemAllocAsync", "default", "cuGetProcAddress_v2"}),
      "loaded yes\nshim\nshim\nnull\nnull\nnull\nnull\n");
}

// Requests dlsym by each version that glibc has had for it, and without a
// version.
TEST_F(Pitfall, Number4NoVersionOfTheLoadersSymbolsIsAssumed) {
  const std::string want = "shim\nshim\nshim\n";
  EXPECT_EQ(RunDlsym({"versioned", FINESERVE_FIRST_GLIBC, "versioned",
                      "GLIBC_2.34", "default", "dlsym"}),
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
