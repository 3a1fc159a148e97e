// An engine on two GPUs behind the proxy, beside one on the second GPU alone: a
// request brings it back to both, and it leaves for what either GPU needs. Each
// byte of its ranks is checked for each answer. Daemons are killed in between.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/groups/group_site.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class GroupServingTest : public ServingSite {
 protected:
  static constexpr int kGpus = 2;

  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs several GPUs";
    const auto seed = static_cast<unsigned>(process::FromEnvironment(
        "FINESERVE_SEED", static_cast<int>(process::RandomSeed())));
    printf("FINESERVE_SEED=%u\n", seed);
    random_.seed(seed);
    Set("EMUCUDA_DEVICES", std::to_string(kGpus));
    Set("EMUCUDA_MEMORY", memory());
    WriteFleetOfGpus();
    for (int gpu = 0; gpu < kGpus; ++gpu) StartDaemonOn(gpu);
    wide_ = std::make_unique<GroupEngine>(
        "wide", LaunchPreloaded({"group_engine", "--gpus", "0,1", "--weights",
                                 "32", "--port", std::to_string(wide_port_)},
                                {{"FINESERVE_ENGINE", "wide"},
                                 {"FINESERVE_EVICT", "auto"}}));
    ASSERT_TRUE(wide_->AwaitReady()) << wide_->parent().Stderr();
    StartProxy({"--access-log", log_path_});
  }
  // Beside the pool of 64 MiB there is room for the weights of both.
  virtual const char* memory() const { return "512MiB"; }
  // That the fleet file names for the engine on both.
  virtual int gpu_of_wide() const { return 0; }

  // The fleet file names GPUs, which daemons without one find.
  void WriteFleetOfGpus() {
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const auto daemon = StartDaemon({"--gpu", GpuArgument(gpu)});
      gpus_.push_back(process::GpuInLog(daemon->Stderr()));
      daemon->EndBy(SIGTERM);
    }
    Served wide{"wide", 4096, wide_port_};
    wide.gpu = gpus_[gpu_of_wide()];
    Served narrow{"narrow", 4096, narrow_port_};
    narrow.gpu = gpus_[1];
    WriteFleet({wide, narrow}, "fail_open");
  }
  static std::string GpuArgument(int gpu) {
    return "emulated:" + std::to_string(gpu);
  }
  void StartDaemonOn(int gpu) {
    daemons_[gpu] =
        StartDaemon(With(Words("--supervise --pool 64MiB --slab 2MiB --fleet " +
                               fleet_path() + " --gpu"),
                         {GpuArgument(gpu)}));
  }
  abi::TableSnapshot TableOf(int gpu) const {
    return TableAt(folder() + "/run/" + gpus_[gpu] + ".sock");
  }
  // Its parent starts another one, which takes the pool over.
  void Kill(int gpu) { EXPECT_TRUE(KillDaemonOf(TableOf(gpu))); }
  // Its engines keep its pool.
  void EndForGood(int gpu) { daemons_[gpu]->EndBy(SIGTERM); }
  void StartNarrow(Process::Environment more = {{"FINESERVE_EVICT", "auto"}}) {
    more["CUDA_VISIBLE_DEVICES"] = "1";
    narrow_ = StartTiny("narrow", narrow_port_,
                        "--view --weights 32MiB --speed 20 --max-model-len 512",
                        more);
    EXPECT_TRUE(Eventually([&] { return AskNarrow().status == 200; }))
        << "the proxy has not seen that it serves";
  }

  // Through the proxy.
  HttpResponse AskWide(const std::string& slo_ms = "120000") {
    return HttpClient(port()).Ask(
        "POST", "/v1/completions",
        R"({"model": "wide", "prompt": "check it", "max_tokens": 1})",
        "x-slo-ttft-ms: " + slo_ms + "\r\n");
  }
  HttpResponse AskNarrow(uint32_t number = 1,
                         const std::string& slo_ms = "120000") {
    return HttpClient(port()).Ask("POST", "/v1/completions",
                                  narrow_->Body(Prompt(number, 50), 10),
                                  "x-slo-ttft-ms: " + slo_ms + "\r\n");
  }
  void ExpectWideAnswers() {
    const HttpResponse answer = AskWide();
    EXPECT_EQ(answer.status, 200) << answer.body << Logs();
    EXPECT_EQ(TextOf(answer), "checked");
  }
  void ExpectNarrowAnswers(uint32_t number) {
    const HttpResponse answer = AskNarrow(number);
    EXPECT_EQ(answer.status, 200) << answer.body << Logs();
    EXPECT_EQ(TextOf(answer), narrow_->Expected(Prompt(number, 50), 10));
  }
  void Evict(const std::string& engine) {
    Finished done;
    EXPECT_TRUE(Eventually([&] {
      done = Fsctl({"evict", engine});
      return done.code == 0 && done.out.find("left the GPU") != done.out.npos;
    })) << done.out
        << done.err << Logs();
  }
  // On the GPU, as its daemon lists it.
  bool IsEvicted(const std::string& engine, int gpu) {
    const std::string json =
        Fsctl({"--gpu", gpus_[gpu], "engines", "--json"}).out;
    for (int i = 0;; ++i) {
      const std::string at = "/engines/" + std::to_string(i);
      const std::string name = JsonText(json, at + "/name");
      if (name.empty()) return false;
      if (name != engine) continue;
      const std::string bytes = JsonAt(json, at + "/memory/evicted_bytes");
      return bytes != "0" && bytes != "null";
    }
  }
  std::string LastOfAccessLog() const {
    std::ifstream file(log_path_);
    std::string last;
    for (std::string line; std::getline(file, line);) last = line;
    return last;
  }
  std::string Logs() {
    std::string logs;
    for (auto& daemon : daemons_) logs += "\n-- daemon\n" + daemon->Stderr();
    return logs + "\n-- wide\n" + wide_->parent().Stderr();
  }

  const uint16_t wide_port_ = process::FreePort();
  const uint16_t narrow_port_ = process::FreePort();
  const std::string log_path_ = folder() + "/access.log";
  std::mt19937 random_;
  std::vector<std::string> gpus_;  // UUIDs
  std::unique_ptr<Process> daemons_[kGpus];
  std::unique_ptr<GroupEngine> wide_;
  std::unique_ptr<TinyEngine> narrow_;
};

TEST_F(GroupServingTest, RequestBringsItBackToBothGpus) {
  ExpectWideAnswers();
  for (int round = 0; round < 3; ++round) {
    Evict("wide");
    ExpectWideAnswers();
    std::string line;
    EXPECT_TRUE(Eventually([&] {
      line = LastOfAccessLog();
      return JsonText(line, "/waited_for") == "activation";
    })) << line;
    EXPECT_GT(JsonInt(line, "/waited_ms"), 0) << line;
    EXPECT_EQ(JsonText(line, "/decided_by"), "fineserved") << line;
  }
}

TEST_F(GroupServingTest, FsctlShowsTheModelsOfAllGpus) {
  const Finished models = Fsctl({"models"});
  EXPECT_EQ(models.code, 0) << models.err;
  EXPECT_THAT(models.out, HasSubstr("wide"));
  EXPECT_THAT(models.out, HasSubstr("narrow"));
  EXPECT_EQ(Fsctl({"requests"}).code, 0);
}

TEST_F(GroupServingTest, ManyRequestsWaitForOneReturn) {
  for (int round = 0; round < 2; ++round) {
    Evict("wide");
    std::vector<std::thread> clients;
    for (int n = 0; n < 8; ++n) {
      clients.emplace_back([this] { ExpectWideAnswers(); });
    }
    for (std::thread& client : clients) client.join();
  }
}

// The daemon that is dead may be the one that admits and moves, or the one that
// has the other rank's memory.
TEST_F(GroupServingTest, RequestThatWaitsOutlivesEitherDaemon) {
  for (int round = 0; round < 4; ++round) {
    const int gpu = round % kGpus;
    Evict("wide");
    if (round < kGpus) {
      Kill(gpu);
    } else {
      EndForGood(gpu);
    }
    std::thread client([this] { ExpectWideAnswers(); });
    if (round >= kGpus) StartDaemonOn(gpu);
    client.join();
  }
}

// Wherever in the way back.
TEST_F(GroupServingTest, DaemonsThatDieWhileARequestBringsItBackLoseNothing) {
  for (int round = 0; round < 6; ++round) {
    Evict("wide");
    std::thread client([this] { ExpectWideAnswers(); });
    usleep(static_cast<useconds_t>(random_() % 60'000));
    Kill(round % kGpus);
    client.join();
  }
}

class AdmittedBySecondGpuTest : public GroupServingTest {
 protected:
  int gpu_of_wide() const override { return 1; }
};

TEST_F(AdmittedBySecondGpuTest, RequestBringsItBackToBothGpus) {
  for (int round = 0; round < 3; ++round) {
    Evict("wide");
    ExpectWideAnswers();
  }
}

// Beside the pool there is room for the weights of one.
class CrowdedSecondGpuTest : public GroupServingTest {
 protected:
  const char* memory() const override { return "116MiB"; }
};

// The engine on the second GPU cannot leave.
TEST_F(CrowdedSecondGpuTest, RequestIsRefusedIfItCannotComeBack) {
  Evict("wide");
  StartNarrow(/*more=*/{});
  const HttpResponse refused = AskWide("1500");
  EXPECT_EQ(refused.status, 429) << refused.body << Logs();
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_THAT(refused.body, HasSubstr("first token"));
  EXPECT_TRUE(Eventually([&] {
    return IsEvicted("wide", 0) && IsEvicted("wide", 1);
  })) << "a part of it stays on one side";
  narrow_->process().EndBy(SIGKILL);
  ExpectWideAnswers();
}

// The engine of the second GPU needs what the other one has there, and that one
// comes back for its next request.
TEST_F(CrowdedSecondGpuTest, ModelsOfOneAndOfBothGpusTakeTurns) {
  ExpectWideAnswers();
  StartNarrow();
  EXPECT_TRUE(IsEvicted("wide", 0) && IsEvicted("wide", 1)) << Logs();
  for (uint32_t round = 0; round < 4; ++round) {
    ExpectWideAnswers();
    EXPECT_TRUE(IsEvicted("narrow", 1));
    ExpectNarrowAnswers(round);
    EXPECT_TRUE(IsEvicted("wide", 0) && IsEvicted("wide", 1));
  }
}

// Neither is ever idle.
TEST_F(CrowdedSecondGpuTest, ModelsThatAreNeverIdleTakeTurns) {
  StartNarrow();
  std::atomic<bool> ends{false};
  std::atomic<int> of_wide{0}, of_narrow{0};
  std::vector<std::thread> clients;
  for (uint32_t n = 0; n < 2; ++n) {
    clients.emplace_back([&] {
      for (; !ends && !HasFailure(); ++of_wide) ExpectWideAnswers();
    });
    clients.emplace_back([&, n] {
      for (; !ends && !HasFailure(); ++of_narrow) ExpectNarrowAnswers(n);
    });
  }
  for (int turn = 0; turn < 3; ++turn) {
    const int wide = of_wide, narrow = of_narrow;
    EXPECT_TRUE(Eventually([&] {
      return HasFailure() || (of_wide > wide && of_narrow > narrow);
    })) << Logs();
  }
  ends = true;
  for (std::thread& client : clients) client.join();
  printf("%d and %d answers\n", of_wide.load(), of_narrow.load());
}

// Daemons die while one GPU asks the other's daemon for its room.
TEST_F(CrowdedSecondGpuTest, DaemonsThatDieWhileOneGpuNeedsRoomLoseNothing) {
  StartNarrow();
  for (uint32_t round = 0; round < 8; ++round) {
    const bool wide_waits = round / 2 % 2 == 0;
    std::thread client(
        [&] { wide_waits ? ExpectWideAnswers() : ExpectNarrowAnswers(round); });
    usleep(static_cast<useconds_t>(random_() % 80'000));
    Kill(static_cast<int>(round % kGpus));
    client.join();
  }
  ExpectWideAnswers();
  ExpectNarrowAnswers(1);
  // All slabs come free with their engines.
  narrow_->process().EndBy(SIGKILL);
  wide_->parent().Signal(SIGKILL);
  EXPECT_TRUE(wide_->EventuallyEnds());
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    EXPECT_TRUE(Eventually([&] {
      const abi::TableSnapshot table = TableOf(gpu);
      return std::all_of(table.slabs.begin(), table.slabs.end(),
                         [](const abi::SlabSnapshot& slab) {
                           return slab.word.state == abi::SlabState::kFree;
                         });
    })) << gpu;
  }
}

// The engine that it moves serves on, and none can have its room.
TEST_F(CrowdedSecondGpuTest, DaemonThatEndsForGoodKeepsItsEngineHere) {
  StartNarrow();
  ExpectWideAnswers();
  EndForGood(0);
  EXPECT_EQ(AskNarrow(1, "1500").status, 429);
  const Finished evict = Fsctl({"evict", "wide"});
  EXPECT_EQ(evict.code, 3) << evict.out;
  EXPECT_THAT(evict.err, HasSubstr("does not answer"));
  ExpectWideAnswers();
  wide_->parent().Signal(SIGKILL);
  EXPECT_TRUE(wide_->EventuallyEnds());
  ExpectNarrowAnswers(1);
}

}  // namespace
}  // namespace fineserve::integration
