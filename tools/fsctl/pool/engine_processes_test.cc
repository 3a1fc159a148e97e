#include "tools/fsctl/pool/engine_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tools/fsctl/terminal/exit_code.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EngineProcessesTest : public testing::Test {
 protected:
  EngineProcessesTest() {
    setenv("FINESERVE_RUNTIME_DIR", folder_.path().c_str(), 1);
  }
  ~EngineProcessesTest() override { unsetenv("FINESERVE_RUNTIME_DIR"); }

  const process::TemporaryFolder folder_;
};

TEST_F(EngineProcessesTest, ANumberIsAProcessIdWithoutADaemon) {
  const auto pids = ProcessesOf("", "4711");
  ASSERT_TRUE(pids.ok()) << pids.status();
  EXPECT_THAT(*pids, ElementsAre(4711));
  EXPECT_EQ(*OneProcessOf("", "4711"), 4711);
}

TEST_F(EngineProcessesTest, NoProcessHasSuchANumber) {
  for (const char* text : {"0", "-3"}) {
    const absl::Status status = ProcessesOf("", text).status();
    EXPECT_EQ(ExitCodeOfProcess(status), kExitUsage) << text;
  }
}

TEST_F(EngineProcessesTest, ANameNeedsADaemonAndSaysSo) {
  const absl::Status status = ProcessesOf("", "llama-a").status();
  EXPECT_EQ(ExitCodeOfProcess(status), kExitNoDaemon);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("give its process id instead"));
}

}  // namespace
}  // namespace fineserve::fsctl
