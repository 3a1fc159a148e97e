// The whole service as an operator runs it: three models compete for one small
// pool, while engines, daemon and supervisor are killed and clients go away. No
// token ever differs.

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <random>

#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {
namespace {

class ServingDeathTest : public ServingSite {
 protected:
  // Starts the whole service. The formats take 4, 8 and 8 KiB of KV per token,
  // with 128, 64 and 128 blocks per slab.
  void StartAll() {
    WriteFleet({Tinyserve("wide", 4096, {"--page", "64KiB"}),
                Tinyserve("deep", 8192, {"--planes", "4", "--page", "32KiB"}),
                Tinyserve("guarded", 8192,
                          {"--page", "64KiB", "--block-tokens", "8", "--mode",
                           "guarded"})},
               "fail_open");
    StartDaemonOfFleet();
    StartSupervisor();
    StartProxy();
  }

  // All models get requests, and one of them gets most, so each in turn needs
  // the others' slabs.
  void BeginLoads(size_t busy) {
    for (size_t m = 0; m < models_.size(); ++m) {
      const AnswerLoad::Shape shape = {m == busy ? 900u : 100u, 40,
                                       /*mixed=*/true};
      loads_.push_back(std::make_unique<AnswerLoad>(models_[m], port(),
                                                    m == busy ? 12 : 2, shape));
    }
  }
  void AwaitAnswers(int more) {
    const int before = Count(Ending::kRight);
    EXPECT_TRUE(Eventually([&] {
      return Count(Ending::kRight) >= before + more;
    })) << Count(Ending::kRight) - before
        << " right answers of " << more;
  }
  // Kills one process: in six turns the daemon once, the supervisor once, and
  // otherwise an engine.
  static constexpr int kFaults = 6;
  void Fault(int turn) {
    if (turn % kFaults == 3) {
      KillDaemon();
    } else if (turn % kFaults == 5) {
      KillSupervisor();
    } else {
      KillEngine();
    }
  }
  void EndLoads() {
    for (const auto& load : loads_) load->AskNoMore();
    for (const auto& load : loads_) load->End();
    for (size_t e = 0; e < kEndings; ++e) {
      for (const auto& load : loads_) ended_[e] += load->Count(Ending(e));
    }
    loads_.clear();
  }

  // Returns how many requests have ended in this way, over all loads so far.
  int Count(Ending ending) const {
    int count = ended_[static_cast<size_t>(ending)];
    for (const auto& load : loads_) count += load->Count(ending);
    return count;
  }
  void NoteHandOvers() {
    const abi::CounterSnapshot counters = Table().counters;
    returned_ += counters.slabs_returned;
    quarantined_ += counters.slabs_quarantined;
  }
  // Returns the number of requests that the daemon counts as waiting or
  // running.
  int RequestsInBooks() {
    return JsonInt(Fsctl({"requests", "--json"}).out, "/total");
  }
  bool Serves(const TinyModel& model) const {
    const HttpResponse answer = HttpClient(port()).Ask(
        "POST", "/v1/completions", model.Body("hello", 5));
    return answer.status == 200 && TextOf(answer) == model.Expected("hello", 5);
  }
  void RecordFigures() {
    RecordProperty("right", Count(Ending::kRight));
    RecordProperty("refused", Count(Ending::kRefused));
    RecordProperty("bad_gateway", Count(Ending::kBadGateway));
    RecordProperty("error_event", Count(Ending::kErrorEvent));
    RecordProperty("left", Count(Ending::kLeft));
    RecordProperty("engines_killed", engines_killed_);
    RecordProperty("daemons_killed", daemons_killed_);
    RecordProperty("supervisors_killed", supervisors_killed_);
    RecordProperty("slabs_returned", static_cast<int>(returned_));
    RecordProperty("slabs_quarantined", static_cast<int>(quarantined_));
  }

  const std::array<TinyModel, 3> models_ = {
      TinyModel("wide"), TinyModel("deep"), TinyModel("guarded")};
  uint64_t returned_ = 0;     // slabs, by engines that live
  uint64_t quarantined_ = 0;  // slabs, of dead ones

 private:
  Served Tinyserve(const std::string& name, int kv_token_bytes,
                   const std::vector<std::string>& format) const {
    const uint16_t port = process::FreePort();
    Served served = {
        name,
        kv_token_bytes,
        port,
        {Program("tinyserve"), "--model", name, "--port", std::to_string(port),
         "--speed", "1000", "--max-model-len", "1024", "--max-num-seqs", "24"}};
    served.command.insert(served.command.end(), format.begin(), format.end());
    return served;
  }
  void StartSupervisor() { up_ = LaunchUp(); }

  // Kills the oldest engine of the pool, so that all engines get to use the
  // pool.
  void KillEngine() {
    uint64_t oldest_ns = UINT64_MAX;
    pid_t oldest = 0;
    for (const abi::EngineSnapshot& engine : Table().engines) {
      const bool is_older = engine.state == abi::EngineState::kAlive &&
                            !engine.member_pids.empty() &&
                            engine.since_ns < oldest_ns;
      if (!is_older) continue;
      oldest_ns = engine.since_ns;
      oldest = static_cast<pid_t>(engine.member_pids[0]);
    }
    if (!process::SignalOne(oldest, SIGKILL)) return;  // all are down just now
    ++engines_killed_;
  }
  // Kills the daemon. The engines continue with what they hold of its pool.
  void KillDaemon() {
    NoteHandOvers();
    daemon_->EndBy(SIGKILL);
    StartDaemonOfFleet();
    ++daemons_killed_;
  }
  // Its engines outlive it.
  void KillSupervisor() {
    up_->EndBy(SIGKILL);
    StartSupervisor();
    ++supervisors_killed_;
  }

  std::unique_ptr<Process> up_;
  std::vector<std::unique_ptr<AnswerLoad>> loads_;  // one of each model
  std::array<int, kEndings> ended_ = {};            // of loads that have ended
  int engines_killed_ = 0, daemons_killed_ = 0, supervisors_killed_ = 0;
};

// 10,000 answers ($FINESERVE_TEST_REQUESTS) take some minutes.
TEST_F(ServingDeathTest, NoTokenDiffersWhileTheServiceDiesPartByPart) {
  const unsigned seed = process::RandomSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> answers(20, 60);
  const int wanted = WantedAnswers(400);
  StartAll();
  for (int turn = 0; turn < kFaults || Count(Ending::kRight) < wanted; ++turn) {
    if (HasFailure()) break;
    BeginLoads(turn % models_.size());
    AwaitAnswers(answers(random));
    Fault(turn);
    AwaitAnswers(answers(random));
    EndLoads();
  }
  EXPECT_EQ(Count(Ending::kWrong), 0);
  EXPECT_EQ(Count(Ending::kCut), 0) << "the proxy lives, so it says what broke";
  for (const TinyModel& model : models_) {
    EXPECT_TRUE(Eventually([&] { return Serves(model); }))
        << model.model() << "\n"
        << Fsctl({"status"}).out;
  }
  EXPECT_TRUE(Eventually([&] { return RequestsInBooks() == 0; }))
      << Fsctl({"requests"}).out;
  NoteHandOvers();
  EXPECT_GT(returned_, 0u) << "slabs changed hands";
  RecordFigures();
}

}  // namespace
}  // namespace fineserve::integration
