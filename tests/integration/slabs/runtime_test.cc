// Stock programs on the CUDA runtime API, as nvcc compiles them.
#include <gmock/gmock.h>
#include <unistd.h>

#include <set>
#include <sstream>
#include <string>

#include "tests/conformance/runtime_requests.h"
#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

constexpr char kKvBytes[] = "12582912";  // three slabs

class RuntimeTest : public Site {
 protected:
  void SetUp() override {
    if (access(Program("runtime_engine_shared").c_str(), X_OK) != 0) {
      GTEST_SKIP() << "no nvcc when this was built";
    }
  }

  std::unique_ptr<Process> Launch(const std::string& program) {
    return LaunchPreloaded({program, kKvBytes},
                           {{"FINESERVE_KV_SIZES", kKvBytes}});
  }
};

TEST_F(RuntimeTest, KvOfTheSharedRuntimeLandsInSlabs) {
  const auto daemon = StartDaemon();
  const auto engine = Launch("runtime_engine_shared");
  EXPECT_THAT(engine->ReadLineWith("kv"), HasSubstr("zero: yes"));
  ASSERT_EQ(engine->ReadLineWith("ready"), "ready") << engine->Stderr();
  EXPECT_EQ(SlabsOf(engine->pid()), 3u);
  const Finished explained = Fsctl({"explain", std::to_string(engine->pid())});
  EXPECT_THAT(explained.out, HasSubstr("its size is declared as KV"));
  EXPECT_THAT(explained.out, HasSubstr("libcudart.so.13"));
  engine->CloseStdin();
  EXPECT_EQ(engine->Wait(), 0) << engine->Stderr();
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

TEST_F(RuntimeTest, StaticRuntimeHearsOnceThatItNeedsARealGpu) {
  const auto daemon = StartDaemon();
  const auto engine = Launch("runtime_engine_static");
  EXPECT_EQ(engine->Wait(), 1);
  const std::string said = engine->Stderr();
  const std::string why = "has a statically linked CUDA runtime, which needs";
  EXPECT_THAT(said, HasSubstr(why));
  EXPECT_EQ(said.find(why), said.rfind(why)) << said;
}

// The calls by which the runtime allocates and frees, learns about addresses
// and opens memory to peers. All its other calls work on redirected memory as
// on any other memory.
const std::set<std::string>& MustBeHooked() {
  static const auto* const names =
      new std::set<std::string>{"cuMemAlloc",
                                "cuMemAllocPitch",
                                "cuMemAllocManaged",
                                "cuMemAllocAsync",
                                "cuMemAllocFromPoolAsync",
                                "cuMemFree",
                                "cuMemFreeAsync",
                                "cuMemGetAddressRange",
                                "cuPointerGetAttribute",
                                "cuPointerGetAttributes",
                                "cuIpcGetMemHandle",
                                "cuIpcOpenMemHandle",
                                "cuIpcCloseMemHandle",
                                "cuMemPoolSetAccess"};
  return *names;
}

class RuntimeRequestTest : public Site {};

TEST_F(RuntimeRequestTest,
       EveryMemoryRequestOfNvidiasRuntimeIsAnsweredWithItsHook) {
  const Finished asked =
      RunToEnd({Program("ask_as_runtime")}, EngineEnvironment());
  ASSERT_EQ(asked.code, 0) << asked.err;
  std::istringstream lines(asked.out);
  std::set<std::string> hooked;
  std::string name, version, flags, library;
  int requests = 0;
  while (lines >> name >> version >> flags >> library) {
    ++requests;
    const bool must = MustBeHooked().count(name) != 0;
    EXPECT_EQ(library, must ? "libfineserve_shim.so" : "libcuda.so.1")
        << name << " " << version << " flags " << flags;
    if (must) hooked.insert(name);
  }
  EXPECT_EQ(requests, std::size(conformance::kRuntimeMemoryRequests));
  EXPECT_EQ(hooked, MustBeHooked()) << "one was never asked for";
}

}  // namespace
}  // namespace fineserve::integration
