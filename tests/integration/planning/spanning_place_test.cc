// An engine on two GPUs moves from one pair to another while it gets requests,
// when the second GPU of its pair is drained: real daemons, fsctl up, proxy and
// ranks.

#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/planning/planned_model.h"
#include "tests/integration/serving/serving_site.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/fleet_text.h"

namespace fineserve::integration {
namespace {

class SpanningPlaceTest : public ServingSite {
 protected:
  static constexpr int kGpus = 4;
  static constexpr int kPairs = 2;  // GPUs 0 and 1, 2 and 3
  static constexpr uint32_t kTokenBytes = 4096;

  ~SpanningPlaceTest() override {
    EndClient();
    if (up_ != nullptr && up_->alive()) up_->EndBy(SIGTERM);
  }

  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs several GPUs";
    Set("EMUCUDA_DEVICES", std::to_string(kGpus));
    Set("EMUCUDA_MEMORY", "1GiB");
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const auto daemon = StartDaemon({"--gpu", GpuArgument(gpu)});
      gpus_.push_back(process::GpuInLog(daemon->Stderr()));
      daemon->EndBy(SIGTERM);
    }
    WriteWideFleet();
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      daemons_.push_back(
          StartDaemon({"--gpu", GpuArgument(gpu), "--pool", "64MiB", "--slab",
                       "2MiB", "--fleet", fleet_path()}));
    }
    up_ = LaunchUp();
    StartProxy();
  }

  static std::string GpuArgument(int gpu) {
    return "emulated:" + std::to_string(gpu);
  }
  static std::string PlaceName(int pair) {
    return "wide-" + std::to_string(pair);
  }

  void WriteWideFleet() {
    WritePlannedProfile("wide", kTokenBytes, folder(), /*ranks=*/2);
    stage::FleetText file;
    file.Proxy({{"without_daemon", "fail_open"}});
    file.Table("[planner]", {{"period", 1}, {"start", 60}, {"drain", 20}});
    file.Model("wide", PlannedKeys("wide", /*rate=*/1));
    const std::vector<std::vector<std::string>> pairs = {{gpus_[0], gpus_[1]},
                                                         {gpus_[2], gpus_[3]}};
    file.Engine(
        "wide", "wide", process::FreePorts(kPairs),
        {{"gpus", pairs},
         {"command", process::With({Program("group_engine")},
                                   process::Words("--gpus 0,1 --weights 32 "
                                                  "--port {port}"))}});
    file.WriteTo(fleet_path());
  }

  // Returns the state of a place in the plan; empty if it is not known.
  std::string StateOf(int pair) {
    const std::string json = Fsctl({"plan", "--json"}).out;
    if (!IsJson(json)) return "";
    for (int i = 0;; ++i) {
      const std::string place = "/places/" + std::to_string(i);
      const std::string engine = JsonText(json, place + "/engine");
      if (engine.empty()) return "";
      if (engine == PlaceName(pair)) return JsonText(json, place + "/state");
    }
  }
  // Returns the pair where the engine serves, if it runs nowhere else;
  // otherwise -1.
  int Settled() {
    for (int pair = 0; pair < kPairs; ++pair) {
      if (StateOf(pair) == "serve" && StateOf(1 - pair) == "off") return pair;
    }
    return -1;
  }
  // True if the daemon knows a view of the place, with a rank on its GPU.
  bool HasViewOn(int gpu, int pair) {
    const std::string json =
        Fsctl({"--gpu", gpus_[gpu], "engines", "--json"}).out;
    for (int i = 0;; ++i) {
      const std::string engine = "/engines/" + std::to_string(i);
      const std::string name = JsonText(json, engine + "/name");
      if (name.empty()) return false;
      if (name == PlaceName(pair))
        return JsonAt(json, engine + "/view") != "null";
    }
  }

  bool Answers() {
    const HttpResponse answer = HttpClient(port()).Ask(
        "POST", "/v1/completions",
        R"({"model": "wide", "prompt": "check it", "max_tokens": 1})",
        "x-slo-ttft-ms: 120000\r\n");
    return answer.status == 200 && TextOf(answer) == "checked";
  }
  void BeginClient() {
    client_ = std::thread([this] {
      while (!ends_) ++(Answers() ? answered_ : failed_);
    });
  }
  void EndClient() {
    ends_ = true;
    if (client_.joinable()) client_.join();
  }

  std::vector<std::string> gpus_;  // UUIDs
  std::vector<std::unique_ptr<Process>> daemons_;
  std::unique_ptr<Process> up_;
  std::atomic<int> answered_ = 0, failed_ = 0;

 private:
  std::atomic<bool> ends_ = false;
  std::thread client_;
};

TEST_F(SpanningPlaceTest, MovesAsOneWhenItsSecondGpuIsDrained) {
  int from = -1;
  ASSERT_TRUE(Eventually([&] { return (from = Settled()) >= 0; }))
      << Fsctl({"plan"}).out;
  ASSERT_TRUE(Eventually([&] { return Answers(); })) << Fsctl({"plan"}).out;
  const int first = 2 * from, second = first + 1;
  EXPECT_TRUE(HasViewOn(first, from));
  EXPECT_TRUE(HasViewOn(second, from));
  BeginClient();
  const int before = answered_;
  ASSERT_TRUE(Eventually([&] { return answered_ > before + 3; }));
  const Finished drained = Fsctl({"drain", gpus_[second]});
  ASSERT_EQ(drained.code, 0) << drained.err;
  EXPECT_TRUE(Eventually([&] { return Settled() == 1 - from; }))
      << Fsctl({"plan"}).out;
  const int moved = answered_;
  EXPECT_TRUE(Eventually([&] { return answered_ > moved + 3; }));
  EndClient();
  EXPECT_EQ(failed_, 0);
  for (const int gpu : {first, second}) {
    EXPECT_TRUE(Eventually([&] { return !HasViewOn(gpu, from); }))
        << "it is still on " << gpus_[gpu];
  }
  for (const int gpu : {3 - first, 2 - first}) {
    EXPECT_TRUE(HasViewOn(gpu, 1 - from)) << gpus_[gpu];
  }
}

}  // namespace
}  // namespace fineserve::integration
