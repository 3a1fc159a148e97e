// Two GPUs, each with its daemon and a replica, serve a steady load. One
// replica fails: every request still has an answer.

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>

#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/daemon_log.h"

namespace fineserve::integration {
namespace {

constexpr int kClients = 8;

struct FailureCase {
  const char* name;
  const char* fault;  // of tinyserve
  // Limits on the answers that had begun and broke off, and on the requests
  // that were late when they were moved: one of each client.
  int most_lost, most_refused;
};

class FailingReplicaTest : public ServingSite,
                           public ::testing::WithParamInterface<FailureCase> {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
    Set("EMUCUDA_DEVICES", "2");
    // Memory does not matter here.
    Process::Environment outside = EngineEnvironment();
    outside["FINESERVE_DISABLE"] = "1";
    Served served[2] = {{"tiny", 4096, 0}, {"tiny-b", 4096, 0}};
    served[1].replica_of = "tiny";
    for (int i = 0; i < 2; ++i) {
      served[i].gpu = process::GpuInLog(StartOn(i, {})->Stderr());
      engines_[i] = std::make_unique<TinyEngine>(
          Program("tinyserve"), "tiny",
          std::vector<std::string>{"--speed", "20", "--max-model-len", "512"},
          outside);
      served[i].port = engines_[i]->port();
    }
    WriteFleet({served[0], served[1]}, "fail_closed");
    for (int i = 0; i < 2; ++i) {
      daemons_[i] = StartOn(i, {"--fleet", fleet_path()});
    }
    StartProxy();
  }
  std::unique_ptr<Process> StartOn(int device, std::vector<std::string> more) {
    more.insert(more.end(), {"--gpu", "emulated:" + std::to_string(device)});
    return StartDaemon(more);
  }
  void Break(const TinyEngine& engine) const {
    HttpClient(engine.port())
        .Send("POST", std::string("/fault/") + GetParam().fault, "{}");
  }
  static bool Answers(const AnswerLoad& load, int more) {
    const int before = load.right();
    return Eventually([&] { return load.right() >= before + more; });
  }

  std::unique_ptr<TinyEngine> engines_[2];
  std::unique_ptr<Process> daemons_[2];
};

TEST_P(FailingReplicaTest, NoRequestIsWithoutAnAnswer) {
  AnswerLoad load(*engines_[0], port(), kClients,
                  {.prompt_tokens = 50, .answer_tokens = 10, .mixed = true});
  ASSERT_TRUE(Answers(load, 50));
  Break(*engines_[1]);
  EXPECT_TRUE(Answers(load, WantedAnswers(300)));
  // A stream that had begun on an engine that hangs waits for its timeout.
  engines_[1]->process().Signal(SIGKILL);
  load.End();
  EXPECT_LE(load.lost(), GetParam().most_lost);
  EXPECT_LE(load.refused(), GetParam().most_refused);
  EXPECT_EQ(load.wrong(), 0);
  proxy_.reset();
}

INSTANTIATE_TEST_SUITE_P(
    Failures, FailingReplicaTest,
    ::testing::Values(FailureCase{"Errs", "error", kClients, 0},
                      FailureCase{"Resets", "reset", kClients, 0},
                      FailureCase{"Hangs", "hang", kClients, kClients},
                      FailureCase{"Dies", "die", kClients, 0}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fineserve::integration
