// The channels by which programs reach the driver, on any driver. An allocation
// that the hooks catch becomes slabs, and the engine scoreboard names its
// channel; one that escapes them is detected. tests/integration tests the
// daemon's side.

#include <gmock/gmock.h>

#include <ostream>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSlabBytes[] = "4194304";

class Channel : public Site {
 protected:
  // Starts an engine and waits until it has allocated `bytes` of KV by
  // `channel`.
  std::unique_ptr<Process> Start(const std::string& channel,
                                 const std::string& library = "",
                                 const std::string& bytes = kSlabBytes,
                                 const Process::Environment& more = {}) {
    Process::Environment environment = EngineEnvironment();
    environment["FINESERVE_KV_SIZES"] = bytes;
    environment.insert(more.begin(), more.end());
    std::vector<std::string> command = {Program("channel_engine"), channel,
                                        bytes};
    if (!library.empty()) command.push_back(Named(library));
    auto engine = std::make_unique<Process>(command, environment);
    EXPECT_THAT(engine->ReadLine(), Not(HasSubstr("at 0")));
    EXPECT_EQ(engine->ReadLine(), "ready") << engine->Stderr();
    return engine;
  }

  std::string Named(const std::string& library) const {
    return Program("../lib/named/" + library);
  }

  std::string Doctor(const Process& engine) {
    return Fsctl({"doctor", std::to_string(engine.pid())}).out;
  }

  // A number of bytes that is too large for doctor to attribute to the driver
  // (on a real GPU, to a context).
  std::string EscapeBytes() const {
    return OnEmulatedGpu() ? "268435456" : "3221225472";
  }

  // Expects that the allocation bypassed the hooks, and that the driver's count
  // reveals it.
  void ExpectFoundByReconciliation(const Process& engine) {
    EXPECT_EQ(SlabsOf(engine.pid()), 0u);
    const std::string said = Doctor(engine);
    if (said.find("not compared") != std::string::npos) {
      GTEST_SKIP() << "this driver does not report what a process holds: "
                   << said;
    }
    EXPECT_THAT(said, HasSubstr("bypassed them"));
  }
};

struct Caught {
  const char* test;
  const char* channel;
  const char* library;
  const char* doctor_says;

  friend void PrintTo(const Caught& c, std::ostream* out) { *out << c.channel; }
};

class CaughtChannel : public Channel,
                      public ::testing::WithParamInterface<Caught> {};

TEST_P(CaughtChannel, LandsInSlabsAndIsNamed) {
  const auto daemon = StartDaemon();
  const auto engine = Start(GetParam().channel, GetParam().library);
  EXPECT_EQ(SlabsOf(engine->pid()), 1u);
  const std::string said = Doctor(*engine);
  EXPECT_THAT(said, HasSubstr(GetParam().doctor_says));
  EXPECT_THAT(said, Not(HasSubstr("bypassed them")));
}

INSTANTIATE_TEST_SUITE_P(
    By, CaughtChannel,
    ::testing::Values(
        Caught{"DirectSymbol", "symbol", "", "bound by its symbol"},
        Caught{"SymbolOfAnOpenedLibrary", "library", "named_trtllm.so",
               "bound by its symbol"},
        Caught{"DlsymDefault", "default", "", "dlsym(RTLD_DEFAULT)"},
        Caught{"DlsymOfTheDriversHandle", "handle", "", "dlsym of a library"},
        Caught{"DlsymNext", "next", "", "dlsym(RTLD_NEXT)"},
        Caught{"DlvsymOfDlsym", "versioned", "", "dlvsym"},
        Caught{"FirstResolver", "first-resolver", "",
               "handed out by cuGetProcAddress 1"},
        Caught{"Resolver", "resolver", "",
               "handed out by cuGetProcAddress_v2 1"},
        Caught{"ResolverThroughItself", "itself", "",
               "handed out by cuGetProcAddress_v2 1"},
        Caught{"PerThreadVariant", "per-thread", "", "cuMemAllocAsync_ptsz"},
        Caught{"Deepbind", "deepbind", "named_trtllm.so",
               "RTLD_DEEPBIND removed 1 times"}),
    [](const auto& p) { return std::string(p.param.test); });

using EscapingChannel = Channel;

TEST_F(EscapingChannel, NamespaceOfItsOwnIsCountedAndWarnedOf) {
  const auto daemon = StartDaemon();
  const auto engine = Start("namespace", "named_trtllm.so");
  EXPECT_EQ(SlabsOf(engine->pid()), 1u);  // its own call was in ours
  const std::string said = Doctor(*engine);
  EXPECT_THAT(said, HasSubstr("1 libraries opened by dlmopen"));
  EXPECT_THAT(said, HasSubstr("CUDA calls from a dlmopen namespace bypass"));
}

TEST_F(EscapingChannel, WalkOfTheDriversSymbolsIsFoundByReconciliation) {
  const auto daemon = StartDaemon();
  const auto engine = Start("library", "named_escape.so", EscapeBytes());
  ExpectFoundByReconciliation(*engine);
}

TEST_F(EscapingChannel, DeepbindThatTheUserKeepsIsFoundByReconciliation) {
  const auto daemon = StartDaemon();
  const auto engine = Start("deepbind", "named_trtllm.so", EscapeBytes(),
                            {{"FINESERVE_KEEP_DEEPBIND", "1"}});
  ExpectFoundByReconciliation(*engine);
}

// If the shim is switched off, the hooks catch nothing.
TEST_F(EscapingChannel, DisabledShimCatchesNothing) {
  const auto daemon = StartDaemon();
  const auto engine =
      Start("resolver", "", kSlabBytes, {{"FINESERVE_DISABLE", "1"}});
  EXPECT_EQ(SlabsOf(engine->pid()), 0u);
}

}  // namespace
}  // namespace fineserve::integration
