// What clients see while daemons are killed and others take their pool over:
// nothing but a little time. FINESERVE_DAEMON_KILLS sets another number, and
// FINESERVE_KILL_WINDOW_MS for how long after each requests are timed, and for
// as long before all of them: 5000 for the figures of design note 0034.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/process/eventually.h"
#include "tests/process/free_port.h"

namespace fineserve::integration {
namespace {

using process::Eventually;

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

  // The time of one short answer, which must be right.
  void Probe(std::vector<double>* times_ms) {
    const auto before = std::chrono::steady_clock::now();
    const HttpResponse answer = HttpClient(port()).Ask(
        "POST", "/v1/completions", wide_->Body("hello", 5));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(TextOf(answer), wide_->Expected("hello", 5));
    times_ms->push_back(std::chrono::duration<double, std::milli>(
                            std::chrono::steady_clock::now() - before)
                            .count());
  }
  void ProbeFor(std::chrono::milliseconds time, std::vector<double>* times_ms) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) Probe(times_ms);
  }
  static int FromEnvironment(const char* name, int otherwise) {
    const char* value = getenv(name);
    return value == nullptr ? otherwise : atoi(value);
  }
  static double Quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(q * (values.size() - 1))];
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
  ProbeFor(2 * window, &calm);
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
      "%d kills: %d + %d answers right; a short one took %.0f ms (p99 %.0f) "
      "without kills, %.0f (p99 %.0f, most %.0f) with\n",
      kills, wide.right(), deep.right(), Quantile(calm, .5),
      Quantile(calm, .99), Quantile(killed, .5), Quantile(killed, .99),
      Quantile(killed, 1));
  EXPECT_TRUE(wide_->process().alive());
  EXPECT_TRUE(deep_->process().alive());
}

}  // namespace
}  // namespace fineserve::integration
