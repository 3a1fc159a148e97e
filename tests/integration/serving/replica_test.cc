// Replicas of a model on two GPUs, each with its daemon, behind one proxy.

#include <gmock/gmock.h>
#include <signal.h>

#include <string>

#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class ReplicaTest : public ServingSite {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
    Set("EMUCUDA_DEVICES", "2");
    for (int i = 0; i < 2; ++i)
      gpus_[i] = process::GpuInLog(StartOn(i, {})->Stderr());
  }
  void Serve(const Served& first, const Served& second) {
    WriteFleet({first, second}, "fail_closed");
    for (int i = 0; i < 2; ++i) {
      daemons_[i] = StartOn(i, {"--fleet", fleet_path()});
    }
    up_ = LaunchUp();
    for (int lines = 0; lines < 4; ++lines) {
      if (up_->ReadLine().find("(2 of 2 serving)") != std::string::npos) break;
    }
  }
  void TearDown() override {
    if (up_ == nullptr) return;
    EXPECT_EQ(up_->EndBy(SIGTERM), 0);
  }

  std::unique_ptr<Process> StartOn(int device, std::vector<std::string> more) {
    more.insert(more.end(), {"--gpu", "emulated:" + std::to_string(device)});
    return StartDaemon(more);
  }
  Served Engine(const std::string& name, int gpu, double rate,
                const std::string& replica_of) {
    ports_[gpu] = process::FreePort();
    Served served{name, 4096, ports_[gpu]};
    served.command = {Program("tinyserve"),
                      "--model",
                      "tiny",
                      "--port",
                      std::to_string(ports_[gpu]),
                      "--speed",
                      "20",
                      "--max-model-len",
                      "1024",
                      "--page",
                      "64KiB"};
    served.gpu = gpus_[gpu];
    served.target_rate = rate;
    served.replica_of = replica_of;
    return served;
  }
  int AdmittedOn(int gpu) {
    const Finished models = Fsctl({"--gpu", gpus_[gpu], "models", "--json"});
    return JsonInt(models.out, "/models/0/admitted");
  }
  // Returns the number of right answers to `count` requests. Their SLO is
  // longer than the time until a daemon is known to be dead.
  int Right(int count) {
    int right = 0;
    for (int i = 0; i < count; ++i) {
      const std::string prompt = Prompt(i, 50);
      const HttpResponse response = HttpClient(port()).Ask(
          "POST", "/v1/completions", model_.Body(prompt, 10),
          "x-slo-ttft-ms: 120000\r\n");
      right += response.status == 200 &&
               TextOf(response) == model_.Expected(prompt, 10);
    }
    return right;
  }

  const TinyModel model_{"tiny"};
  std::string gpus_[2];
  uint16_t ports_[2] = {};
  std::unique_ptr<Process> daemons_[2], up_;
};

TEST_F(ReplicaTest, RequestsAreSplitByTargetRateAndTheOtherTakesOver) {
  Serve(Engine("tiny", 0, 3, ""), Engine("tiny-b", 1, 1, "tiny"));
  StartProxy();
  ASSERT_TRUE(Eventually([&] {  // both daemons decide
    return Right(1) == 1 && AdmittedOn(0) > 0 && AdmittedOn(1) > 0;
  }));
  const int first = AdmittedOn(0), second = AdmittedOn(1);
  EXPECT_EQ(Right(40), 40);
  EXPECT_EQ(AdmittedOn(0) - first, 30);
  EXPECT_EQ(AdmittedOn(1) - second, 10);
  // With fail_closed, these requests would be refused without the other GPU.
  daemons_[0]->EndBy(SIGKILL);
  EXPECT_EQ(Right(40), 40);
  EXPECT_GE(AdmittedOn(1) - second, 40);
}

// The first replica, the only one with a target rate, is full for seconds.
TEST_F(ReplicaTest, RequestGoesToTheOneThatIsFree) {
  Served first = Engine("tiny", 0, 1, "");
  first.max_batch = 2;
  first.command[first.command.size() - 5] = "0.5";  // --speed
  Serve(first, Engine("tiny-b", 1, 0, "tiny"));
  StartProxy();
  ASSERT_TRUE(Eventually([&] {  // the first one's daemon decides
    return Right(1) == 1 && AdmittedOn(0) > 0;
  }));
  const int held = AdmittedOn(0), before = AdmittedOn(1);
  HttpClient streams[2] = {HttpClient(port()), HttpClient(port())};
  for (HttpClient& stream : streams) {
    stream.Send("POST", "/v1/completions",
                model_.Body(Prompt(1000, 10), 900, ", \"stream\": true"));
    EXPECT_EQ(stream.ReadHead().status, 200);
  }
  ASSERT_EQ(AdmittedOn(0), held + 2);
  EXPECT_EQ(Right(8), 8);
  EXPECT_EQ(AdmittedOn(0), held + 2) << "as if they had never been there";
  EXPECT_EQ(AdmittedOn(1), before + 8);
}

// Otherwise each GPU would bring the model back, and evict other engines for
// it.
TEST_F(ReplicaTest, EvictedModelComesBackToOneGpu) {
  Served engines[2] = {Engine("tiny", 0, 0, ""),
                       Engine("tiny-b", 1, 0, "tiny")};
  for (Served& engine : engines) {
    engine.command.insert(engine.command.end(),
                          {"--view", "--weights", "8MiB"});
    engine.evict_after_s = 3600;
  }
  Serve(engines[0], engines[1]);
  StartProxy();
  const auto away = [&](int i) {
    return Fsctl({"--gpu", gpus_[i], "engines"}).out.find(" evicted ") !=
           std::string::npos;
  };
  const auto evict = [&](int i) {
    return Fsctl({"--gpu", gpus_[i], "evict", engines[i].name}).code == 0;
  };
  // The proxy may not know at once that both replicas are away.
  int here = 0;
  ASSERT_TRUE(Eventually([&] {
    if (!evict(0) || !evict(1)) return false;
    EXPECT_EQ(Right(1), 1);
    here = away(0) ? 1 : 0;
    return away(0) != away(1);
  }));
  EXPECT_EQ(Right(8), 8);
  EXPECT_TRUE(away(1 - here)) << "the first has room for all";
}

// fsctl up shows each engine only its own GPU.
TEST_F(ReplicaTest, EachEngineHoldsSlabsOfItsGpu) {
  Serve(Engine("tiny", 0, 3, ""), Engine("tiny-b", 1, 1, "tiny"));
  for (int gpu = 0; gpu < 2; ++gpu) {
    const Finished slabs = Fsctl({"--gpu", gpus_[gpu], "slabs"});
    EXPECT_THAT(slabs.out, HasSubstr(gpu == 0 ? "tiny" : "tiny-b"));
  }
}

}  // namespace
}  // namespace fineserve::integration
