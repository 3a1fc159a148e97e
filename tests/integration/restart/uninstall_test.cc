// FineServe is removed while engines serve: its daemon ends, and its files are
// deleted. The engines continue, and the programs that they start run without
// it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class UninstallTest : public Site {
 protected:
  UninstallTest() {
    fs::create_directories(folder() + "/installed/bin");
    fs::copy_file(Program("fineserved"), Installed("fineserved"));
    fs::copy_file(Program("view_engine"), Installed("view_engine"));
    const std::string lib = folder() + "/installed/lib";
    const fs::path emulated = EngineEnvironment().at("LD_LIBRARY_PATH");
    fs::create_directory(lib);
    fs::create_directory_symlink(emulated, lib + "/emucuda");
    preload_ = {{"LD_PRELOAD", lib + "/libfineserve_shim.so"}};
    fs::copy_file(EngineEnvironment().at("LD_PRELOAD"),
                  preload_.at("LD_PRELOAD"));
    daemon_ = LaunchProgram(Words(Installed("fineserved") +
                                  " --pool 64MiB --slab 4MiB --gpu " + Gpu()));
    AwaitDaemon(daemon_.get());
  }

  std::string Installed(const std::string& program) const {
    return folder() + "/installed/bin/" + program;
  }
  void Uninstall() {
    EXPECT_EQ(daemon_->EndBy(SIGTERM), 0) << daemon_->Stderr();
    fs::remove_all(folder() + "/installed");
  }

  Process::Environment preload_;
  std::unique_ptr<Process> daemon_;
};

TEST_F(UninstallTest, ViewsServeFromTheBlocksThatTheyHave) {
  const auto view = LaunchPreloaded(
      With({Installed("view_engine")}, Words("--watermark 32")), preload_);
  ASSERT_NE(view->ReadLineWith("ready"), "") << view->Stderr();
  EXPECT_TRUE(Eventually([&] {
    view->Ask("step");
    return view->Ask("alloc 8").rfind("ok", 0) == 0;
  })) << view->Stderr();
  EXPECT_THAT(view->Ask("write"), HasSubstr("ok"));
  Uninstall();
  for (int round = 0; round < 20; ++round) {
    EXPECT_THAT(view->Ask("verify"), HasSubstr("ok"));
    EXPECT_THAT(view->Ask("alloc 4"), HasSubstr("ok")) << view->Stderr();
    EXPECT_THAT(view->Ask("write"), HasSubstr("ok"));
    EXPECT_THAT(view->Ask("free 4"), HasSubstr("ok"));
  }
  view->Tell("exit");
  EXPECT_EQ(view->Wait(), 0) << view->Stderr();
}

TEST_F(UninstallTest, WholeSlabsStayAndLaterMemoryIsTheDrivers) {
  const auto engine = StartEngine("8MiB", {}, preload_);
  EXPECT_EQ(SlabsOf(engine->pid()), 4u);
  Uninstall();
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(engine->Ask("free"), HasSubstr("ok freed"));
  EXPECT_THAT(engine->Ask("alloc"), HasSubstr("ok allocated"));
  EXPECT_THAT(engine->Ask("write 2"), HasSubstr("ok wrote"));
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
}

// For example, an engine starts its workers again, or runs a compiler.
TEST_F(UninstallTest, ProgramsThatStartLaterRunWithoutThePreload) {
  const auto engine = StartEngine("8MiB", {}, preload_);
  Uninstall();
  engine->Tell("exec");
  EXPECT_TRUE(engine->Logs("cannot be preloaded")) << engine->Stderr();
  engine->Tell("go");
  ASSERT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
}

}  // namespace
}  // namespace fineserve::integration
