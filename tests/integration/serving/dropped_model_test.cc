// Two equal replicas on two GPUs behind the proxy. In a burst, the daemons
// decide that one of them gives its weights up for KV, and it gets them back
// when the burst is over. tinyserve's tokens depend on its weights and on its
// KV.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/stage/fleet_text.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

constexpr int kTokenBytes = 4096;
constexpr int kCopyBytes = 64 << 20;                   // of weights
constexpr int kCopyTokens = kCopyBytes / kTokenBytes;  // of KV, in them
constexpr int kTensorBytes = 4 << 20;                  // of each of them

class DroppedModelTest : public ServingSite {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
    Set("EMUCUDA_DEVICES", "2");
    Set("EMUCUDA_MEMORY", "208MiB");
    for (int i = 0; i < 2; ++i) {
      gpus_[i] = process::GpuInLog(
          StartDaemon({"--gpu", "emulated:" + std::to_string(i)})->Stderr());
    }
  }
  void Serve(const stage::TomlKeys& overload,
             const std::array<std::string, 2>& freeze) {
    freeze_[0] = freeze[0];
    freeze_[1] = freeze[1];
    WriteFleet(overload);
    for (int i = 0; i < 2; ++i) {
      StartOn(i);
      StartReplica(i);
    }
    StartProxy();
    ExpectBothServe();
  }
  void ExpectBothServe() {
    ASSERT_TRUE(Eventually([&] {
      return Number(0, "most_running") > 0 && Number(1, "most_running") > 0;
    }));
  }
  void TearDown() override { EndBurst(); }
  void ServeWithALink() {
    Serve({{"link_gb_s", 400}, {"rereads", 1}}, {"--freeze", "--freeze"});
  }
  // If `by_up`, fsctl up starts the replicas.
  void WriteFleet(const stage::TomlKeys& overload, bool by_up = false) {
    stage::FleetText file;
    file.Proxy({{"without_daemon", "fail_open"}});
    file.Table("[overload]", overload);
    file.Model("chat",
               {{"kv_token_bytes", kTokenBytes},
                {"slo_ttft_ms", 3000},
                {"profile", stage::TomlValue::Profile(19000, 40, 160)}});
    for (int i = 0; i < 2; ++i) {
      stage::TomlKeys keys = {{"gpu", gpus_[i]}, {"evict", "auto"}};
      if (by_up) {
        keys.emplace_back("gpu_by", i == 0 ? "uuid" : "index");
        keys.emplace_back(
            "command",
            With({Program("tinyserve"), "--model", "chat"}, FlagsOf(i)));
      }
      file.Engine(NameOf(i), "chat", ports_[i], keys);
    }
    file.WriteTo(fleet_path());
  }
  static std::string NameOf(int i) { return "chat-" + std::to_string(i); }
  // Starts a daemon whose parent keeps the pool, and starts the daemon again
  // when it has died.
  void StartOn(int i) {
    daemons_[i] = StartDaemon(
        With(Words("--supervise --pool auto --reserve 100MiB --headroom 16MiB "
                   "--slab 8MiB --planes 4 --fleet " +
                   fleet_path()),
             {"--gpu", "emulated:" + std::to_string(i)}));
  }
  void KillDaemon(int i) {
    const std::string pid = std::to_string(daemons_[i]->pid());
    pid_t child = 0;
    std::ifstream("/proc/" + pid + "/task/" + pid + "/children") >> child;
    ASSERT_GT(child, 0);
    kill(child, SIGKILL);
  }
  std::vector<std::string> FlagsOf(int i) const {
    return Words("--port " + std::to_string(ports_[i]) +
                 " --view --weights 64MiB --max-model-len 1024 --speed .4 " +
                 freeze_[i]);
  }
  void StartReplica(int i) {
    engines_[i] = std::make_unique<TinyEngine>(
        Program("tinyserve"), "chat", FlagsOf(i),
        EngineEnvironment({{"FINESERVE_ENGINE", NameOf(i)},
                           {"FINESERVE_EVICT", "auto"},
                           {"CUDA_VISIBLE_DEVICES", i == 0 ? "0,1" : "1,0"}}));
  }
  // Returns a figure of the replica from its daemon; 0 if the daemon does not
  // answer.
  int Number(int i, const std::string& field) {
    const Finished models = Fsctl({"--gpu", gpus_[i], "models", "--json"});
    return atoi(JsonAt(models.out, "/models/0/engines/0/" + field).c_str());
  }
  bool HasDropped(int i) { return Number(i, "dropped_bytes") != 0; }
  bool AnyHasDropped() { return HasDropped(0) || HasDropped(1); }
  // Begins `requests` requests at once, each for a quarter of a thousand
  // tokens.
  void BeginBurst(int requests) {
    for (int n = 0; n < requests; ++n) {
      clients_.emplace_back([this, n] {
        const std::string prompt = Prompt(n, 700);
        const HttpResponse answer = HttpClient(port()).Ask(
            "POST", "/v1/completions", model_.Body(prompt, 250),
            "x-slo-ttft-ms: 120000\r\n");
        if (answer.status != 200) {
          ++failed_;
          return;
        }
        ++answers_;
        EXPECT_EQ(TextOf(answer), model_.Expected(prompt, 250)) << n;
      });
    }
  }
  void EndBurst() {
    for (std::thread& client : clients_) client.join();
    clients_.clear();
  }
  void ExpectOwnCopies() {
    EXPECT_TRUE(Eventually([&] { return !AnyHasDropped(); }))
        << daemons_[0]->Stderr() << daemons_[1]->Stderr();
    for (int i = 0; i < 2; ++i) {
      const HttpResponse answer = HttpClient(ports_[i]).Ask(
          "POST", "/v1/completions", model_.Body(Prompt(7, 50), 20));
      EXPECT_EQ(TextOf(answer), model_.Expected(Prompt(7, 50), 20));
    }
  }

  const TinyModel model_{"chat"};
  const uint16_t ports_[2] = {process::FreePort(), process::FreePort()};
  std::string gpus_[2], freeze_[2];
  std::unique_ptr<Process> daemons_[2];
  std::unique_ptr<TinyEngine> engines_[2];
  std::vector<std::thread> clients_;
  std::atomic<int> answers_{0}, failed_{0};
};

TEST_F(DroppedModelTest, BurstTurnsWeightsIntoKvAndItsEndRestoresThem) {
  ServeWithALink();
  const int kv_before[2] = {Number(0, "kv_tokens"), Number(1, "kv_tokens")};
  for (int round = 0; round < 2; ++round) {
    BeginBurst(90);
    int most[2] = {}, dropped[2] = {};
    EXPECT_TRUE(Eventually([&] {
      bool all_became_kv = true;
      for (const int i : {0, 1}) {
        dropped[i] = std::max(dropped[i], Number(i, "dropped_bytes"));
        most[i] = std::max(most[i], Number(i, "kv_tokens") - kv_before[i]);
        all_became_kv &=
            dropped[i] != 0 && most[i] >= dropped[i] / kTokenBytes * 95 / 100;
      }
      return all_became_kv && most[0] + most[1] >= kCopyTokens * 95 / 100;
    })) << most[0]
        << " and " << most[1] << " of " << kCopyTokens << "\n"
        << Fsctl({"models"}).out << daemons_[0]->Stderr()
        << daemons_[1]->Stderr();
    printf("KV grew by %d and %d tokens\n", most[0], most[1]);
    for (const int bytes : dropped) {
      EXPECT_LE(bytes, kCopyBytes / 2 + kTensorBytes);
    }
    EndBurst();
    EXPECT_EQ(answers_, 90 * (round + 1)) << failed_;
    ExpectOwnCopies();
  }
}

// Each replica sees its own GPU first, and then the other replica's.
TEST_F(DroppedModelTest, ReplicasOfFsctlUpReadEachOthersWeights) {
  freeze_[0] = freeze_[1] = "--freeze";
  WriteFleet({{"link_gb_s", 400}, {"rereads", 1}}, /*by_up=*/true);
  StartOn(0);
  StartOn(1);
  const std::unique_ptr<Process> up = LaunchUp();
  StartProxy();
  ExpectBothServe();
  for (int i = 0; i < 2; ++i) {
    const Finished drop = Fsctl({"drop", NameOf(i), "--from", NameOf(1 - i)});
    EXPECT_EQ(drop.code, 0) << drop.out << drop.err;
    ExpectOwnCopies();  // soon, as no request waits
  }
  BeginBurst(90);
  EXPECT_TRUE(Eventually([&] { return AnyHasDropped(); }))
      << Fsctl({"models"}).out << daemons_[0]->Stderr();
  EndBurst();
  EXPECT_EQ(answers_, 90) << failed_;
  ExpectOwnCopies();
  EXPECT_EQ(up->EndBy(SIGTERM), 0) << up->Stderr();
}

TEST_F(DroppedModelTest, ReasonIsSaidWhereNothingIsDropped) {
  Serve({{"link_gb_s", 400}}, {"--freeze", ""});
  BeginBurst(90);
  for (int i = 0; i < 2; ++i) {
    const std::string why =
        i == 0 ? "no other replica has the same weights"
               : "does not say which memory holds weights alone";
    EXPECT_TRUE(Eventually([&] {
      return Fsctl({"explain", NameOf(i)}).out.find(why) != std::string::npos;
    })) << Fsctl({"explain", NameOf(i)}).out
        << daemons_[i]->Stderr();
  }
  EXPECT_FALSE(AnyHasDropped());
  EndBurst();
  EXPECT_EQ(answers_, 90) << failed_;
}

// Kills engines and daemons at any moment of a drop or a restoration that the
// policy orders.
TEST_F(DroppedModelTest, DeathsInTheMiddleGiveNoWrongToken) {
  const int rounds = process::FromEnvironment("FINESERVE_DROP_KILLS", 6);
  ServeWithALink();
  int drops = 0;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    BeginBurst(90);
    const bool late = round / 4 % 2 == 1;  // after the drop
    if (late) {
      EXPECT_TRUE(Eventually([&] { return AnyHasDropped(); }));
    } else {
      EXPECT_TRUE(Eventually([&] {
        return daemons_[0]->Stderr().find("KV is short") != std::string::npos ||
               daemons_[1]->Stderr().find("KV is short") != std::string::npos;
      }));
    }
    usleep(2'000 * (round / 8));
    drops += AnyHasDropped();
    const int victim = round % 2;
    if (round / 2 % 2 == 0) {
      engines_[victim]->process().EndBy(SIGKILL);
      StartReplica(victim);
    } else {
      KillDaemon(victim);
    }
    EndBurst();
    ExpectBothServe();
    ExpectOwnCopies();
    if (!HasFailure()) continue;
    ADD_FAILURE() << "round " << round << "\n"
                  << Fsctl({"models"}).out << daemons_[0]->Stderr()
                  << daemons_[1]->Stderr();
  }
  printf(
      "%d answers, %d requests that died with their engine, %d rounds, %d "
      "had dropped\n",
      answers_.load(), failed_.load(), rounds, drops);
}

}  // namespace
}  // namespace fineserve::integration
