// Tests which GPU the engines of fsctl up see when they ask as vLLM does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/integration/site.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two GPUs, the second of which has a daemon.
class UpGpuTest : public Site {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
    Set("EMUCUDA_DEVICES", "2");
    daemon_ = StartDaemon({"--gpu", "emulated:1"});
    uuid_ = process::GpuInLog(daemon_->Stderr());
  }

  // Writes a fleet of one engine, whose [[engine]] contains `keys`.
  void WriteFleet(const std::string& keys, const std::string& command) {
    std::ofstream(path_)
        << "[[model]]\nname = \"m\"\nslo_ttft_ms = 3000\n"
        << "kv_token_bytes = 4096\n"
        << "profile = { base_us = 1, per_token_us = 1, per_sequence_us = 1 }\n"
        << "[[engine]]\nname = \"e\"\nmodel = \"m\"\nurl = "
        << "\"http://127.0.0.1:" << process::FreePort() << "\"\n"
        << keys << "\ncommand = [" << command << "]\n";
  }
  // Returns the first line that this engine prints.
  std::string Says(const std::string& keys, const std::string& command) {
    WriteFleet(keys, command);
    const process::TemporaryFolder logs;
    Process up({Program("fsctl"), "up", path_, "--logs", logs.path()},
               environment());
    std::string said;
    EXPECT_TRUE(Eventually([&] {
      std::ifstream file(logs.path() + "/e.log");
      return static_cast<bool>(std::getline(file, said));
    })) << up.Stderr();
    EXPECT_EQ(up.EndBy(SIGTERM), 0) << up.Stderr();
    return said;
  }
  std::string ChosenGpu(const std::string& takes) {
    return absl::StrCat("\"", Program("chosen_gpu"), "\", \"", takes, "\"");
  }
  std::string OnItsGpu(const std::string& order) {
    return absl::StrCat("NVML ", uuid_, ", CUDA ", uuid_, ", order ", order);
  }

  const std::string path_ = folder() + "/fleet.toml";
  std::unique_ptr<Process> daemon_;
  std::string uuid_;
};

TEST_F(UpGpuTest, UuidIsHandedWholeWhenTheFleetGivesItsBeginning) {
  const std::string gpu = absl::StrCat("gpu = \"", uuid_.substr(0, 12), "\"");
  EXPECT_EQ(Says(gpu, ChosenGpu("uuid")), OnItsGpu("unset"));
}

TEST_F(UpGpuTest, EngineThatTakesNoUuidGetsTheIndexByPciBus) {
  const std::string gpu = absl::StrCat("gpu = \"", uuid_, "\"");
  EXPECT_EQ(Says(gpu, ChosenGpu("index")),
            absl::StrCat("invalid literal for int(): ", uuid_));
  EXPECT_EQ(Says(gpu + "\ngpu_by = \"index\"", ChosenGpu("index")),
            OnItsGpu("PCI_BUS_ID"));
}

// An engine on several GPUs needs this.
TEST_F(UpGpuTest, GpusThatItsOwnEnvironmentNamesAreShown) {
  EXPECT_EQ(Says(absl::StrCat("gpu = \"", uuid_,
                              "\"\nenv = { CUDA_VISIBLE_DEVICES = \"1,0\" }"),
                 "\"/bin/sh\", \"-c\", "
                 "\"echo $CUDA_VISIBLE_DEVICES; exec sleep 3600\""),
            "1,0");
}

TEST_F(UpGpuTest, EngineWhoseIndexIsBeingLookedUpStopsWhenAsked) {
  WriteFleet(absl::StrCat("gpu = \"", uuid_, "\"\ngpu_by = \"index\""),
             ChosenGpu("index"));
  Process::Environment slow = environment();
  slow["EMUCUDA_LATENCY_US"] = "cuInit=60000000";
  Process up({Program("fsctl"), "up", path_}, slow);
  EXPECT_THAT(up.ReadLine(), HasSubstr("e: started"));
  up.Signal(SIGTERM);
  EXPECT_THAT(up.ReadAll(), Not(HasSubstr("killing engines")));
  EXPECT_EQ(up.Wait(), 0);
}

// The emulated driver has no MIG instances, so nothing asks it for this one.
TEST_F(UpGpuTest, MigInstanceIsHandedByItsWholeMigUuid) {
  const std::string gpu =
      absl::StrCat("gpu = \"MIG-", uuid_.substr(4, 8), "\"");
  EXPECT_EQ(Says(gpu,
                 "\"/bin/sh\", \"-c\", "
                 "\"echo $CUDA_VISIBLE_DEVICES; exec sleep 3600\""),
            absl::StrCat("MIG-", uuid_.substr(4)));
}

}  // namespace
}  // namespace fineserve::integration
