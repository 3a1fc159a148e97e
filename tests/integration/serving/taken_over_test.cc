// What clients see while daemons are killed and others take their pool over:
// nothing but a little time. FINESERVE_DAEMON_KILLS sets another number, and
// FINESERVE_KILL_WINDOW_MS for how long after each the time to first token is
// taken; before all of them it is taken for as long as that in total, and at
// most a minute. 5000 for the figures of design note 0034.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/workload/metrics.h"
#include "tests/integration/json_value.h"
#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/process/free_port.h"
#include "tests/process/from_environment.h"

namespace fineserve::integration {
namespace {

using process::FromEnvironment;
using workload::Quantile;

class TakenOverTest : public ServingSite {
 protected:
  void StartAll() {
    const uint16_t wide_port = process::FreePort(),
                   deep_port = process::FreePort();
    WriteFleet({{"wide", 4096, wide_port}, {"deep", 8192, deep_port}},
               "fail_closed");
    StartDaemonOfFleet({"--supervise"});
    wide_ = StartEngine("wide", {"--page", "64KiB"}, wide_port);
    deep_ =
        StartEngine("deep", {"--planes", "4", "--page", "32KiB"}, deep_port);
    StartProxy();
  }
  std::unique_ptr<TinyEngine> StartEngine(const std::string& name,
                                          std::vector<std::string> more,
                                          uint16_t port) {
    more.insert(more.end(),
                {"--view", "--speed", "200", "--max-model-len", "1024",
                 "--max-num-seqs", "24", "--port", std::to_string(port)});
    Process::Environment environment = EngineEnvironment();
    environment["FINESERVE_ENGINE"] = name;
    return std::make_unique<TinyEngine>(Program("tinyserve"), name, more,
                                        environment);
  }

  // The time to the first token of one short answer, which must be right.
  void Probe(std::vector<double>* ttfts_ms) {
    const auto before = std::chrono::steady_clock::now();
    HttpClient client(port());
    client.Send("POST", "/v1/completions",
                wide_->Body("hello", 5, ", \"stream\": true"));
    EXPECT_EQ(client.ReadHead().status, 200);
    std::string text;
    while (const auto event = client.ReadEvent()) {
      if (*event == "[DONE]") break;
      if (text.empty()) {
        ttfts_ms->push_back(std::chrono::duration<double, std::milli>(
                                std::chrono::steady_clock::now() - before)
                                .count());
      }
      text += JsonText(*event, kTextOfAnswer);
    }
    EXPECT_EQ(text, wide_->Expected("hello", 5));
  }
  void ProbeFor(std::chrono::milliseconds time, std::vector<double>* ttfts_ms) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) Probe(ttfts_ms);
  }

  std::unique_ptr<TinyEngine> wide_, deep_;
};

TEST_F(TakenOverTest, EveryRequestIsAnsweredRight) {
  const int kills = FromEnvironment("FINESERVE_DAEMON_KILLS", 5);
  const std::chrono::milliseconds window(
      FromEnvironment("FINESERVE_KILL_WINDOW_MS", 1500));
  StartAll();
  AnswerLoad wide(*wide_, port(), 6, {300, 40});
  AnswerLoad deep(*deep_, port(), 6, {300, 40});
  std::vector<double> calm, killed;
  ProbeFor(std::min(kills * window, std::chrono::milliseconds(60'000)), &calm);
  for (int i = 0; i < kills; ++i) {
    const pid_t before = static_cast<pid_t>(Table().daemon_pid);
    ASSERT_EQ(kill(before, SIGKILL), 0);
    ProbeFor(window, &killed);
    ASSERT_NE(static_cast<pid_t>(Table().daemon_pid), before);
  }
  for (AnswerLoad* load : {&wide, &deep}) {
    load->End();
    EXPECT_GT(load->right(), 0);
    EXPECT_EQ(load->wrong(), 0);
    EXPECT_EQ(load->lost(), 0);
    EXPECT_EQ(load->refused(), 0);
  }
  printf(
      "%d kills: %d + %d answers right; TTFT %.1f ms (p99 %.1f, most %.1f of "
      "%zu) without kills, %.1f (p99 %.1f, most %.1f of %zu) with\n",
      kills, wide.right(), deep.right(), Quantile(calm, .5),
      Quantile(calm, .99), Quantile(calm, 1), calm.size(), Quantile(killed, .5),
      Quantile(killed, .99), Quantile(killed, 1), killed.size());
  EXPECT_TRUE(wide_->process().alive());
  EXPECT_TRUE(deep_->process().alive());
}

}  // namespace
}  // namespace fineserve::integration
