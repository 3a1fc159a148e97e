// The daemon of the first GPU admits for an engine on two GPUs, while the
// second GPU has less KV for it. Requests beyond that KV wait at the daemon,
// where they can still be refused, instead of in the engine.

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/ranks/group_serving_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

// Slabs of the engine hold 512 tokens each: 32 blocks of 16.
class GroupAdmissionTest : public GroupServingSite {
 protected:
  static constexpr uint32_t kSlabTokens = 512;

  ~GroupAdmissionTest() override {
    for (std::thread& client : clients_) client.join();
  }
  void StartWide() override { LaunchWide({"--prompts"}, "never"); }
  std::string PoolOf(int gpu) const override {
    return gpu == 0 ? "64MiB" : "32MiB";
  }

  // Sends a prompt that takes `slabs` slabs.
  HttpResponse AskFor(uint32_t slabs, const std::string& slo_ms = "120000") {
    std::string ids = "1";
    for (uint32_t i = 1; i < slabs * kSlabTokens - 112; ++i) ids += ",1";
    return HttpClient(port()).Ask(
        "POST", "/v1/completions",
        "{\"model\": \"wide\", \"prompt\": [" + ids +
            "], \"max_tokens\": 1, \"slabs\": " + std::to_string(slabs) + "}",
        "x-slo-ttft-ms: " + slo_ms + "\r\n");
  }
  void AskOften(int requests) {
    for (int i = 0; i < requests; ++i) {
      clients_.emplace_back([this] {
        const HttpResponse answer = AskFor(1);
        EXPECT_EQ(answer.status, 200) << answer.body << Logs();
        ++answered_;
      });
    }
  }
  // Lets "narrow" keep the KV of one request of `tokens` tokens.
  void FillSecondGpu(uint32_t tokens, bool through_proxy = true) {
    narrow_ = StartTiny("narrow", narrow_port_,
                        "--view --speed 20 --max-model-len 8192 "
                        "--floor 1",
                        {{"CUDA_VISIBLE_DEVICES", "1"}});
    EXPECT_TRUE(Eventually([&] { return AskNarrow().status == 200; }));
    narrow_->HoldAfter(1);
    const uint16_t to = through_proxy ? port() : narrow_port_;
    clients_.emplace_back([this, tokens, to] {
      const HttpResponse answer = HttpClient(to).Ask(
          "POST", "/v1/completions", narrow_->Body(Prompt(7, tokens), 10),
          "x-slo-ttft-ms: 120000\r\n");
      EXPECT_EQ(answer.status, 200) << answer.body << Logs();
    });
    narrow_->AwaitHold();
    EXPECT_TRUE(EventuallySureOf(16 - 12)) << State();
  }
  // Requests that wait at the daemon that admits, and requests that it has let
  // in.
  int Waiting() { return Figure("/queued"); }
  int LetIn() { return Figure("/engines/0/running"); }
  // Waits until "wide" says that it can be sure of the blocks of `slabs` whole
  // slabs.
  bool EventuallySureOf(int slabs) {
    return Eventually([&] {
      const std::string json =
          Fsctl({"--gpu", gpus_[0], "engines", "--json"}).out;
      return JsonAt(json, "/engines/0/view/spans_gpus/sure_blocks") ==
             std::to_string(slabs * 32);
    });
  }
  int Figure(const std::string& at) {
    const std::string json =
        Fsctl({"--gpu", gpus_[gpu_of_wide()], "models", "--json"}).out;
    const int model = JsonText(json, "/models/0/name") == "wide" ? 0 : 1;
    return JsonInt(json, "/models/" + std::to_string(model) + at);
  }
  // All that it has let in run.
  bool EventuallyAllRun(int requests) {
    return Eventually([&] {
      const int let_in = LetIn();
      return let_in > 0 && let_in + Waiting() + answered_ == requests &&
             wide_->Stat("running") == let_in && wide_->Stat("waiting") == 0;
    });
  }
  bool FinishAll(int requests) {
    return Eventually([&] {
      EXPECT_EQ(wide_->parent().Ask("finish"), "ok finished");
      return answered_ == requests;
    });
  }
  std::string State() {
    return "let in " + std::to_string(LetIn()) + ", waiting " +
           std::to_string(Waiting()) +
           "; the engine: " + wide_->parent().Ask("stats") +
           Fsctl({"--gpu", gpus_[0], "slabs"}).out +
           Fsctl({"--gpu", gpus_[1], "slabs"}).out + Logs();
  }

  std::atomic<int> answered_{0};
  std::vector<std::thread> clients_;
};

TEST_F(GroupAdmissionTest, RequestsWaitForKvOfTheOtherGpuAtTheDaemon) {
  FillSecondGpu(6'000);
  AskOften(12);
  EXPECT_TRUE(EventuallyAllRun(12)) << State();
  printf("%s\n", wide_->parent().Ask("stats").c_str());
  EXPECT_GT(Waiting(), 0) << State();
  narrow_->Continue();
  EXPECT_TRUE(FinishAll(12)) << State();
}

// Narrow's client bypasses the proxy, so narrow's daemon has promised nothing.
// Requests for an engine that runs nothing may count on KV that others use, so
// the first request is sent alone.
TEST_F(GroupAdmissionTest, KvInUseOnTheOtherGpuIsSeen) {
  FillSecondGpu(6'000, /*through_proxy=*/false);
  AskOften(1);
  EXPECT_TRUE(EventuallyAllRun(1)) << State();
  AskOften(11);
  EXPECT_TRUE(EventuallyAllRun(12)) << State();
  EXPECT_GT(Waiting(), 0) << State();
  narrow_->Continue();
  EXPECT_TRUE(FinishAll(12)) << State();
}

TEST_F(GroupAdmissionTest, PromptThatTheSmallerPoolNeverHoldsIsRefused) {
  AskOften(1);
  EXPECT_TRUE(EventuallyAllRun(1)) << State();  // it has said what it has
  const HttpResponse refused = AskFor(20);      // of 16; the first GPU has 32
  EXPECT_EQ(refused.status, 400) << refused.body << State();
  EXPECT_THAT(refused.body, HasSubstr("prompt of this length"));
  EXPECT_TRUE(FinishAll(1)) << State();
}

TEST_F(GroupAdmissionTest, RequestThatWaitsForTheOtherGpuIsRefusedInTime) {
  FillSecondGpu(6'000);
  AskOften(4);
  EXPECT_TRUE(EventuallyAllRun(4)) << State();
  const HttpResponse refused = AskFor(2, "1500");
  EXPECT_EQ(refused.status, 429) << refused.body << State();
  EXPECT_THAT(refused.body, HasSubstr("first token"));
  narrow_->Continue();
  EXPECT_TRUE(FinishAll(4)) << State();
}

// Without the other daemon, the engine gets no slab on any GPU.
TEST_F(GroupAdmissionTest, WithoutTheOtherDaemonItsOwnSlabsCount) {
  AskOften(2);
  EXPECT_TRUE(EventuallyAllRun(2)) << State();
  EndForGood(1);
  EXPECT_TRUE(EventuallySureOf(2)) << State();
  AskOften(6);
  EXPECT_TRUE(Eventually([&] { return Waiting() == 6; })) << State();
  EXPECT_TRUE(EventuallyAllRun(8)) << State();
  EXPECT_TRUE(FinishAll(8)) << State();
}

// A daemon that takes the pool over finds its engines, and what the other
// daemon has said.
TEST_F(GroupAdmissionTest, DaemonsThatTakeOverKnowItAgain) {
  FillSecondGpu(6'000);
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    AskOften(6);
    EXPECT_TRUE(EventuallyAllRun(6 * (gpu + 1))) << State();
    EXPECT_GT(Waiting(), 0) << State();
    Kill(gpu);
  }
  EXPECT_TRUE(EventuallyAllRun(12)) << State();
  EXPECT_GT(Waiting(), 0) << State();
  narrow_->Continue();
  EXPECT_TRUE(FinishAll(12)) << State();
}

}  // namespace
}  // namespace fineserve::integration
