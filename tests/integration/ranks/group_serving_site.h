#ifndef TESTS_INTEGRATION_RANKS_GROUP_SERVING_SITE_H_
#define TESTS_INTEGRATION_RANKS_GROUP_SERVING_SITE_H_

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/ranks/group_site.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {

// Two engines behind the proxy: "wide" on two GPUs, and "narrow", which a test
// starts, on the second GPU alone.
class GroupServingSite : public ServingSite {
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
    StartWide();
    StartProxy({"--access-log", log_path_});
  }
  virtual void StartWide() { LaunchWide({"--weights", "32"}, "auto"); }
  void LaunchWide(const std::vector<std::string>& flags,
                  const std::string& evict) {
    wide_ = std::make_unique<GroupEngine>(
        "wide", LaunchPreloaded(With({"group_engine", "--gpus", "0,1", "--port",
                                      std::to_string(wide_port_)},
                                     flags),
                                {{"FINESERVE_ENGINE", "wide"},
                                 {"FINESERVE_EVICT", evict}}));
    ASSERT_TRUE(wide_->AwaitReady()) << wide_->parent().Stderr();
  }
  virtual std::string PoolOf(int /*gpu*/) const { return "64MiB"; }
  // Leaves room for the weights of both engines beside the pool of 64 MiB.
  virtual const char* memory() const { return "512MiB"; }
  // The GPU that the fleet file names for the engine on both GPUs.
  virtual int gpu_of_wide() const { return 0; }

  // The fleet file must name the GPUs' UUIDs, which daemons started without a
  // fleet file report.
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
    narrow.prompt_tokens = "exact";
    WriteFleet({wide, narrow}, "fail_open");
  }
  static std::string GpuArgument(int gpu) {
    return "emulated:" + std::to_string(gpu);
  }
  void StartDaemonOn(int gpu) {
    daemons_[gpu] = StartDaemon(
        With(Words("--supervise --pool " + PoolOf(gpu) +
                   " --slab 2MiB --fleet " + fleet_path() + " --gpu"),
             {GpuArgument(gpu)}));
  }
  abi::TableSnapshot TableOf(int gpu) const {
    return TableAt(folder() + "/run/" + gpus_[gpu] + ".sock");
  }
  // Kills the daemon. Its parent starts another one, which takes over the pool.
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
  // True if the daemon of the GPU lists the engine as evicted.
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

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_RANKS_GROUP_SERVING_SITE_H_
