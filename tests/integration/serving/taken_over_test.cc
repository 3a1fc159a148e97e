// Three engines of different formats, with a view, with a guarded view and with
// whole slabs, while daemons are killed and others take their pool over:
// clients notice only a short delay. FINESERVE_DAEMON_KILLS sets another number
// of kills, and FINESERVE_KILL_WINDOW_MS for how long the time to first token
// is measured after each. Before the first kill, it is measured for as long as
// all windows together, but at most a minute. The figures of design note 0034
// come from 5000 kills with windows of 1500 ms.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/process/random_seed.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::integration {
namespace {

using process::FromEnvironment;
using workload::Quantile;

class TakenOverTest : public ServingSite {
 protected:
  void StartAll() {
    const uint16_t wide = process::FreePort(), deep = process::FreePort(),
                   whole = process::FreePort();
    WriteFleet(
        {{"wide", 4096, wide}, {"deep", 8192, deep}, {"whole", 1024, whole}},
        "fail_closed");
    StartDaemonOfFleet({"--supervise"});
    const std::string flags =
        "--speed 200 --max-model-len 1024 --max-num-seqs 24 ";
    engines_.push_back(StartTiny("wide", wide, flags + "--view --page 64KiB"));
    engines_.push_back(StartTiny(
        "deep", deep, flags + "--view --mode guarded --planes 4 --page 32KiB"));
    engines_.push_back(StartTiny("whole", whole, flags + "--page 16KiB"));
    StartProxy();
  }

  // Measures the time to the first token of one short answer, which must be
  // right.
  void Probe(std::vector<double>* ttfts_ms) {
    const auto before = std::chrono::steady_clock::now();
    HttpClient client(port());
    const TinyEngine& wide = *engines_[0];
    client.Send("POST", "/v1/completions",
                wide.Body("hello", 5, ", \"stream\": true"));
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
    EXPECT_EQ(text, wide.Expected("hello", 5));
  }
  void ProbeFor(std::chrono::milliseconds time, std::vector<double>* ttfts_ms) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) Probe(ttfts_ms);
  }

  // Kills the daemon, sends requests for `window`, and checks the next daemon's
  // pool.
  void Kill(std::chrono::milliseconds window, std::vector<double>* ttfts_ms) {
    const abi::TableSnapshot before = Table();
    const uint32_t whole = SlabsOf(engines_[2]->process().pid());
    ASSERT_TRUE(KillDaemonOf(before));
    ProbeFor(window, ttfts_ms);
    const abi::TableSnapshot now = Table();
    ASSERT_NE(now.daemon_pid, before.daemon_pid);
    EXPECT_EQ(now.epoch, before.epoch);
    EXPECT_EQ(now.counters.slabs_quarantined, 0u);
    AwaitReturn(before.counters.slabs_returned);
    EXPECT_EQ(SlabsOf(engines_[2]->process().pid()), whole);
    for (const auto& engine : engines_) {
      ASSERT_TRUE(engine->process().alive()) << engine->process().Stderr();
    }
  }

  // Under a load that stays the same, slabs move only by chance. So each of the
  // two engines with a view gets many requests in turn, until one has returned
  // a slab to the other.
  void AwaitReturn(uint64_t returned) {
    const auto moved = [&] {
      return Table().counters.slabs_returned > returned;
    };
    const auto deadline = std::chrono::steady_clock::now() + process::kPatience;
    while (!moved() && std::chrono::steady_clock::now() < deadline) {
      more_on_ = 1 - more_on_;
      AnswerLoad more(*engines_[more_on_], port(), 6, {900, 20});
      process::BecomesTrue(moved, std::chrono::milliseconds(500));
      more.End();
      EXPECT_EQ(more.wrong() + more.lost() + more.refused(), 0);
    }
    EXPECT_TRUE(moved()) << "slabs stopped moving";
  }

  std::vector<std::unique_ptr<TinyEngine>> engines_;  // wide, deep, whole
  size_t more_on_ = 0;  // the engine that was asked for more last
};

TEST_F(TakenOverTest, EveryRequestIsAnsweredRight) {
  const int kills = FromEnvironment("FINESERVE_DAEMON_KILLS", 5);
  const std::chrono::milliseconds window(
      FromEnvironment("FINESERVE_KILL_WINDOW_MS", 700));
  StartAll();
  std::vector<std::unique_ptr<AnswerLoad>> loads;
  for (const auto& engine : engines_) {
    loads.push_back(std::make_unique<AnswerLoad>(*engine, port(), 6,
                                                 AnswerLoad::Shape{300, 40}));
  }
  std::mt19937 random(process::RandomSeed());
  std::vector<double> calm, killed;
  ProbeFor(std::min(kills * window, std::chrono::milliseconds(60'000)), &calm);
  for (int i = 0; i < kills; ++i) {
    // Kills at a random moment of the load, even while the last kill still has
    // effects.
    usleep(random() % 30'000);
    ASSERT_NO_FATAL_FAILURE(Kill(window, &killed)) << "kill " << i;
  }
  int right = 0;
  for (const auto& load : loads) {
    load->End();
    EXPECT_GT(load->right(), 0);
    EXPECT_EQ(load->wrong(), 0);
    EXPECT_EQ(load->lost(), 0);
    EXPECT_EQ(load->refused(), 0);
    right += load->right();
  }
  printf(
      "%d kills: %d answers right; TTFT %.1f ms (p99 %.1f, most %.1f of %zu) "
      "without kills, %.1f (p99 %.1f, most %.1f of %zu) with\n",
      kills, right, Quantile(calm, .5), Quantile(calm, .99), Quantile(calm, 1),
      calm.size(), Quantile(killed, .5), Quantile(killed, .99),
      Quantile(killed, 1), killed.size());
  const uint32_t slabs = static_cast<uint32_t>(Table().slabs.size());
  engines_.clear();
  EXPECT_TRUE(EventuallyFree(slabs)) << Fsctl({"slabs"}).out;
}

}  // namespace
}  // namespace fineserve::integration
