// A daemon dies with the only holder of its pool: the next one begins with a
// new pool, and `fsctl up` brings the engines over, one after another, while
// clients ask.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::integration {
namespace {

using process::Eventually;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class OrphanRollTest : public ServingSite {
 protected:
  Served Engine(const std::string& name, const std::string& model) {
    const uint16_t port = process::FreePort();
    return {.name = name,
            .kv_token_bytes = 4096,
            .port = port,
            .command = {Program("tinyserve"), "--model", model, "--page",
                        "64KiB", "--view", "--speed", "20", "--max-model-len",
                        "1024", "--port", absl::StrCat(port)},
            .replica_of = name == model ? "" : model};
  }
  void StartAll(const std::vector<std::string>& flags_of_up) {
    WriteFleet({Engine("wide", "wide"), Engine("wide-2", "wide"),
                Engine("deep", "deep"), Engine("deep-2", "deep")},
               "fail_open");
    StartDaemonOfFleet();
    up_ = LaunchUp(flags_of_up);
    ReadUntil("(4 of 4 serving)");
    StartProxy();
  }
  // Waits for a line of `fsctl up` that contains `part`; returns the lines up
  // to and including it.
  std::vector<std::string> ReadUntil(const std::string& part) {
    std::vector<std::string> lines;
    do {
      lines.push_back(up_->ReadLine());
    } while (!lines.back().empty() &&
             lines.back().find(part) == std::string::npos);
    EXPECT_THAT(lines.back(), HasSubstr(part));
    return lines;
  }
  void LoseThePool() {
    ASSERT_EQ(kill(daemon_->pid(), SIGKILL), 0);
    daemon_->Wait();
    StartDaemonOfFleet();
  }
  int FormerPools() {
    const std::string engines = Fsctl({"engines", "--json"}).out;
    int pools = 0;
    while (!JsonAt(engines, absl::StrCat("/former_pools/", pools)).empty()) {
      ++pools;
    }
    return pools;
  }

  std::unique_ptr<Process> up_;
};

TEST_F(OrphanRollTest, EnginesOfAFormerPoolAreBroughtOverOneAfterAnother) {
  StartAll({});
  const TinyModel wide("wide"), deep("deep");
  AnswerLoad wide_load(wide, port(), 3, {100, 20});
  AnswerLoad deep_load(deep, port(), 3, {100, 20});
  LoseThePool();
  std::vector<std::string> rolled;
  for (int i = 0; i < 4; ++i) {
    const std::vector<std::string> lines = ReadUntil("(4 of 4 serving)");
    int began = 0;
    for (const std::string& line : lines) {
      if (line.find("in the pool of a former daemon") == std::string::npos) {
        continue;
      }
      ++began;
      rolled.push_back(line.substr(0, line.find(':')));
    }
    EXPECT_EQ(began, 1) << "the next one before the last one serves";
  }
  EXPECT_THAT(rolled, UnorderedElementsAre("wide", "wide-2", "deep", "deep-2"));
  EXPECT_TRUE(Eventually([&] { return FormerPools() == 0; }));
  const int wide_then = wide_load.right(), deep_then = deep_load.right();
  EXPECT_TRUE(Eventually([&] {
    return wide_load.right() > wide_then + 10 &&
           deep_load.right() > deep_then + 10;
  }));
  for (AnswerLoad* load : {&wide_load, &deep_load}) {
    load->End();
    EXPECT_EQ(load->wrong(), 0);
    EXPECT_EQ(load->lost(), 0);
    EXPECT_EQ(load->refused(), 0);
  }
  printf("%d + %d answers right\n", wide_load.right(), deep_load.right());
}

TEST_F(OrphanRollTest, TheyStayWhereTheOperatorWantsIt) {
  StartAll({"--keep-orphans"});
  LoseThePool();
  EXPECT_TRUE(Eventually([&] { return FormerPools() == 1; }));
  EXPECT_THAT(Fsctl({"engines"}).out, HasSubstr("fsctl up restarts its own"));
  const int first = JsonInt(Fsctl({"engines", "--json"}).out,
                            "/former_pools/0/processes/0/pid");
  usleep(5'000'000);
  EXPECT_EQ(FormerPools(), 1);
  EXPECT_EQ(kill(first, 0), 0);
}

}  // namespace
}  // namespace fineserve::integration
