#include "tools/fsctl/pool/find_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

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
  const std::string self = std::to_string(getpid());
  const auto pids = ProcessesOf("", self);
  ASSERT_TRUE(pids.ok()) << pids.status();
  EXPECT_THAT(*pids, ElementsAre(getpid()));
  EXPECT_EQ(*OneProcessOf("", self), getpid());
}

TEST_F(EngineProcessesTest, NoProcessHasSuchANumber) {
  for (const char* text : {"0", "-3"}) {
    const absl::Status status = ProcessesOf("", text).status();
    EXPECT_EQ(FailWithoutProcess(status), kExitUsage) << text;
  }
}

TEST_F(EngineProcessesTest, ANameNeedsADaemonAndSaysSo) {
  const absl::Status status = ProcessesOf("", "llama-a").status();
  EXPECT_EQ(FailWithoutProcess(status), kExitNoDaemon);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("give its process id instead"));
}

}  // namespace
}  // namespace fineserve::fsctl
