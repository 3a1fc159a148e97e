// fsctl support on a running service: what a bug report needs is in it, and
// what must not leave the machine is not.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "tests/integration/serving/serving_site.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/fleet_text.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Part of every secret.
constexpr char kPlanted[] = "planted";

class SupportTest : public ServingSite {
 protected:
  // Starts a fleet with a key file, and with a key in its engine's command. The
  // engine logs its requests, as some engines do.
  void StartAll() {
    const std::string keys = folder() + "/keys";
    std::ofstream(keys) << "planted-key-1\nplanted-key-2 name=alice trusted\n";
    chmod(keys.c_str(), 0600);
    const uint16_t port = process::FreePort();
    const std::string engine = folder() + "/engine";
    std::ofstream(engine) << "echo INFO got planted-prompt\n"
                          << "echo WARNING slow disk\nexec "
                          << Program("tinyserve")
                          << " --model wide --view --page 64KiB --port " << port
                          << "\n";
    stage::FleetText()
        .Proxy({{"keys", keys}})
        .Model("wide", {{"slo_ttft_ms", 60000}})
        .Engine("wide", "wide", port,
                {{"command",
                  std::vector<std::string>{"/bin/sh", engine, "--api-key",
                                           "planted-flag"}}})
        .WriteTo(fleet_path());
    StartDaemonOfFleet();
    up_ = LaunchUp();
    up_->ReadLine();
    EXPECT_THAT(up_->ReadLine(), HasSubstr("serving after"));
    StartProxy();
  }
  // By path in the archive.
  std::map<std::string, std::string> Unpack(const std::string& archive) {
    const std::string to = folder() + "/unpacked";
    std::filesystem::create_directory(to);
    EXPECT_EQ(
        RunToEnd({"/bin/tar", "-xzf", archive, "-C", to}, environment()).code,
        0);
    std::map<std::string, std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(to)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path());
      files[entry.path().lexically_relative(to)] = {
          std::istreambuf_iterator<char>(file), {}};
    }
    return files;
  }

  std::unique_ptr<Process> up_;
};

// Returns the text of the only file whose path ends with `end`.
std::string FileIn(const std::map<std::string, std::string>& files,
                   const std::string& end) {
  for (const auto& [path, text] : files) {
    if (absl::EndsWith(path, end)) return text;
  }
  ADD_FAILURE() << "no file " << end;
  return "";
}

TEST_F(SupportTest, ArchiveHoldsWhatAReportNeedsAndNoKeyAndNoPrompt) {
  StartAll();
  EXPECT_EQ(HttpClient(port())
                .Ask("POST", "/v1/completions",
                     R"({"model":"wide","prompt":"planted-prompt","user":)"
                     R"("planted-user","max_tokens":5})",
                     "Authorization: Bearer planted-key-1\r\n")
                .status,
            200);
  Set("HF_TOKEN", "planted-variable");
  Set("VLLM_API_KEY", "planted-variable");
  const std::string archive = folder() + "/report.tar.gz";
  const Finished support = Fsctl({"support", "--output", archive});
  ASSERT_EQ(support.code, 0) << support.err;
  EXPECT_THAT(support.out, HasSubstr("wrote " + archive));
  struct stat st;
  ASSERT_EQ(stat(archive.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  const auto files = Unpack(archive);
  for (const auto& [path, text] : files) {
    EXPECT_THAT(text, Not(HasSubstr(kPlanted))) << path;
    EXPECT_THAT(path, Not(HasSubstr(kPlanted)));
  }
  EXPECT_THAT(FileIn(files, "/versions.txt"), HasSubstr("fineserved "));
  EXPECT_THAT(FileIn(files, "/doctor.txt"), HasSubstr("runtime folder"));
  EXPECT_THAT(FileIn(files, "/fleet-fleet.toml"),
              HasSubstr("slo_ttft_ms = 60000"));
  EXPECT_THAT(FileIn(files, "/slabs.json"), HasSubstr("\"slab_bytes\""));
  EXPECT_THAT(FileIn(files, "/models.json"), HasSubstr("\"admitted\": 1"));
  EXPECT_THAT(FileIn(files, "/logs/wide.log"), HasSubstr("WARNING slow disk"));
  EXPECT_THAT(FileIn(files, "/status.txt"), HasSubstr("All is well"));
  EXPECT_THAT(FileIn(files, "/metrics.txt"),
              HasSubstr("fineserve_requests_total{"));
  EXPECT_THAT(FileIn(files, "/recent-requests.json"), HasSubstr("\"wide\""));
  for (const char* of_process : {"/explain-", "/stack-"}) {
    const bool has = std::any_of(files.begin(), files.end(), [&](auto& file) {
      return absl::StrContains(file.first, of_process);
    });
    EXPECT_TRUE(has) << of_process;
  }
  const Finished again = Fsctl({"support", "--output", archive});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("exists already"));
}

TEST_F(SupportTest, WithoutADaemonTheMachineIsDescribed) {
  const std::string archive = folder() + "/report.tar.gz";
  const Finished support = Fsctl({"support", "--output", archive});
  ASSERT_EQ(support.code, 0) << support.err;
  const auto files = Unpack(archive);
  EXPECT_THAT(FileIn(files, "/doctor.txt"), HasSubstr("none is running"));
  FileIn(files, "/versions.txt");
}

}  // namespace
}  // namespace fineserve::integration
