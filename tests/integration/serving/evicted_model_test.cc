// Models whose weights have left the GPU, behind the proxy: a request brings
// them back. tinyserve's tokens depend on its weights and on its KV.

#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/from_environment.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class EvictedModelTest : public ServingSite {
 protected:
  void SetUp() override {
    Served chat{"chat", 4096, process::FreePort()};
    const Served code{"code", 4096, process::FreePort()};
    const Served mail{"mail", 4096, mail_port_};
    chat.evict_after_s = evict_after_s();
    WriteFleet({chat, code, mail}, "fail_open");
    StartDaemonOfFleet(daemon_flags());
    chat_ = Start("chat", chat.port);
    code_ = Start("code", code.port);
    StartProxy();
  }
  virtual int evict_after_s() const { return 0; }
  virtual std::vector<std::string> daemon_flags() const { return {}; }
  virtual std::string engine_options() const {
    return "--view --speed 20 --max-model-len 1024";
  }
  std::unique_ptr<TinyEngine> Start(const std::string& name, uint16_t port,
                                    const std::string& weights = "64MiB") {
    return StartTiny(name, port, engine_options() + " --weights " + weights,
                     {{"FINESERVE_EVICT", "auto"}});
  }
  // Through the proxy.
  HttpResponse Ask(const TinyEngine& engine, const std::string& prompt) {
    return HttpClient(port()).Ask("POST", "/v1/completions",
                                  engine.Body(prompt, 20),
                                  "x-slo-ttft-ms: 120000\r\n");
  }
  void AskAndCompare(const TinyEngine& engine, uint32_t number) {
    const std::string prompt = Prompt(number, 200);
    const HttpResponse answer = Ask(engine, prompt);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(TextOf(answer), engine.Expected(prompt, 20));
  }
  void Evict(const std::string& engine) {
    // The engine may still run a request that its client has abandoned.
    ASSERT_TRUE(Eventually([&] {
      const Finished done = Fsctl({"evict", engine});
      return done.code == 0 && done.out.find("left the GPU") != done.out.npos;
    }));
  }

  const uint16_t mail_port_ = process::FreePort();
  std::unique_ptr<TinyEngine> chat_, code_;
};

// Another model, which gets the slabs that this one leaves, has requests all
// the time.
TEST_F(EvictedModelTest, RequestBringsItBackAndIsAnsweredRight) {
  const auto rounds = static_cast<uint32_t>(
      process::FromEnvironment("FINESERVE_TEST_ROUNDS", 5));
  std::atomic<bool> ends{false};
  std::atomic<uint32_t> beside{0};
  std::thread other([&] {
    while (!ends && !HasFailure()) AskAndCompare(*code_, beside++);
  });
  for (uint32_t round = 0; round < rounds && !HasFailure(); ++round) {
    Evict("chat");
    EXPECT_THAT(Fsctl({"engines"}).out, HasSubstr(" evicted "));
    const uint32_t asked = beside;
    EXPECT_TRUE(Eventually([&] { return beside > asked + 1; }));
    if (round % 2 == 0) {
      EXPECT_EQ(Fsctl({"activate", "chat"}).code, 0);
    }
    AskAndCompare(*chat_, round);
  }
  ends = true;
  other.join();
  printf("%u evictions, %u answers beside\n", rounds, beside.load());
}

TEST_F(EvictedModelTest, ManyRequestsForTwoEvictedModelsAreAllAnsweredRight) {
  for (uint32_t round = 0; round < 3; ++round) {
    Evict("chat");
    Evict("code");
    std::vector<std::thread> clients;
    for (uint32_t n = 0; n < 12; ++n) {
      clients.emplace_back(
          [&, n] { AskAndCompare(n % 2 == 0 ? *chat_ : *code_, n); });
    }
    for (std::thread& client : clients) client.join();
  }
}

TEST_F(EvictedModelTest, RequestThatWaitsOutlivesTheDaemon) {
  Evict("chat");
  daemon_->EndBy(SIGKILL);
  std::thread client([&] { AskAndCompare(*chat_, 1); });
  StartDaemonOfFleet();
  client.join();
  AskAndCompare(*code_, 1);
}

// Daemons die while engines leave, come back, and answer.
TEST_F(EvictedModelTest, DaemonsThatAreKilledDuringMovesLoseNothing) {
  const int kills = process::FromEnvironment("FINESERVE_MOVE_KILLS", 4);
  std::atomic<bool> ends{false};
  std::atomic<uint32_t> answers{0}, moves{0};
  std::vector<std::thread> others;
  for (const char* engine : {"chat", "code"}) {
    others.emplace_back([&, engine] {
      while (!ends) moves += Fsctl({"evict", engine}).code == 0;
    });
  }
  for (const TinyEngine* engine : {chat_.get(), code_.get(), chat_.get()}) {
    others.emplace_back([&, engine] {
      while (!ends && !HasFailure()) AskAndCompare(*engine, answers++);
    });
  }
  for (int k = 0; k < kills && !HasFailure(); ++k) {
    const uint32_t begun = moves;
    EXPECT_TRUE(Eventually([&] { return moves > begun + 1; }));
    daemon_->EndBy(SIGKILL);
    StartDaemonOfFleet();
  }
  ends = true;
  for (std::thread& other : others) other.join();
  RecordProperty("answers", static_cast<int>(answers));
  RecordProperty("moves", static_cast<int>(moves));
  printf("%u answers, %u evictions, %d kills\n", answers.load(), moves.load(),
         kills);
  // All slabs become free once the two engines have ended.
  AskAndCompare(*chat_, 1);
  AskAndCompare(*code_, 1);
  for (auto* engine : {&chat_, &code_}) engine->reset();
  EXPECT_TRUE(EventuallyFree(8));
}

// The client asks the engine directly, without the proxy.
TEST_F(EvictedModelTest, RequestPastTheProxyBringsItBackToo) {
  Evict("chat");
  EXPECT_EQ(chat_->Complete(Prompt(3, 100), 10),
            chat_->Expected(Prompt(3, 100), 10));
}

// Beside the pool of 64 MiB, there is room for the weights of two engines.
class CrowdedGpuTest : public EvictedModelTest {
 protected:
  void SetUp() override {
    Set("EMUCUDA_MEMORY", memory());
    EvictedModelTest::SetUp();
  }
  virtual const char* memory() const { return "240MiB"; }
  // And all three answer right.
  void ExpectThatAThirdOneStarts() {
    AskAndCompare(*chat_, 1);
    AskAndCompare(*code_, 1);
    const auto mail = Start("mail", mail_port_);
    EXPECT_TRUE(Eventually([&] {
      return Ask(*mail, Prompt(1, 10)).status == 200;
    })) << "the proxy has not seen that it serves";
    for (const TinyEngine* engine : {chat_.get(), code_.get(), mail.get()}) {
      AskAndCompare(*engine, 2);
    }
  }
};

TEST_F(CrowdedGpuTest, MoreModelsThanItHoldsTakeTurns) {
  Evict("chat");
  const auto mail = Start("mail", mail_port_);
  EXPECT_TRUE(Eventually([&] {
    return Ask(*mail, Prompt(1, 10)).status == 200;
  })) << "the proxy has not seen that it serves";
  for (uint32_t round = 0; round < 6; ++round) {
    for (const TinyEngine* engine : {chat_.get(), code_.get(), mail.get()}) {
      AskAndCompare(*engine, round);
    }
  }
  std::vector<std::thread> clients;
  for (uint32_t n = 0; n < 12; ++n) {
    clients.emplace_back([&, n] {
      AskAndCompare(n % 3 == 0 ? *chat_ : n % 3 == 1 ? *code_ : *mail, n);
    });
  }
  for (std::thread& client : clients) client.join();
}

// No engine was ordered to leave.
TEST_F(CrowdedGpuTest, EngineThatStartsGetsTheRoomOfAnIdleOne) {
  ExpectThatAThirdOneStarts();
}

// All other engines are idle and have come later.
TEST_F(CrowdedGpuTest, AnotherOneLeavesAtAnOperatorsWord) {
  Evict("chat");
  const auto mail = Start("mail", mail_port_);
  for (const char* engine : {"chat", "code", "mail", "chat"}) {
    const Finished back = Fsctl({"activate", engine});
    EXPECT_EQ(back.code, 0) << back.err << daemon_->Stderr();
  }
  AskAndCompare(*chat_, 1);
}

// Beside two models, less memory is free than a context takes. An engine needs
// a context before it can ask for anything.
class FullGpuTest : public CrowdedGpuTest {
 protected:
  void SetUp() override {
    Set("EMUCUDA_CONTEXT_MEMORY", "24MiB");
    CrowdedGpuTest::SetUp();
  }
  const char* memory() const override { return "288MiB"; }
};

TEST_F(FullGpuTest, EngineThatStartsGetsRoomForItsContext) {
  ExpectThatAThirdOneStarts();
}

// Two models always run requests; the third one gets its turn.
TEST_F(CrowdedGpuTest, ModelsThatAreNeverIdleGiveWay) {
  const auto mail = Start("mail", mail_port_);
  std::atomic<bool> ends{false};
  std::vector<std::thread> clients;
  for (uint32_t n = 0; n < 4; ++n) {
    clients.emplace_back([&, n] {
      while (!ends && !HasFailure()) AskAndCompare(n % 2 ? *chat_ : *code_, n);
    });
  }
  EXPECT_TRUE(Eventually([&] {
    return Ask(*mail, Prompt(1, 10)).status == 200;
  })) << "the proxy has not seen that it serves";
  for (uint32_t round = 0; round < 3; ++round) AskAndCompare(*mail, round);
  ends = true;
  for (std::thread& client : clients) client.join();
}

// The pool takes part of the memory that engines leave, and gives it back.
class GrowingPoolTest : public CrowdedGpuTest {
 protected:
  std::vector<std::string> daemon_flags() const override {
    return {"--pool", "auto", "--reserve", "64MiB", "--headroom", "16MiB"};
  }
  const char* memory() const override { return "256MiB"; }
  bool AnyIsEvicted() {
    return Fsctl({"engines"}).out.find(" evicted ") != std::string::npos;
  }
};

// Without a request for it.
TEST_F(GrowingPoolTest, EngineThatLeftForAnotherComesBackWhenThatEnds) {
  const auto mail = Start("mail", mail_port_, "128MiB");
  EXPECT_TRUE(Eventually([&] { return AnyIsEvicted(); }));
  mail->process().EndBy(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !AnyIsEvicted(); }));
  AskAndCompare(*chat_, 1);
  AskAndCompare(*code_, 1);
}

// Tensors of one granule use the free memory to the last byte. The engine that
// starts then needs memory for its KV as well.
class FullGrowingPoolTest : public GrowingPoolTest {
 protected:
  std::string engine_options() const override {
    return GrowingPoolTest::engine_options() + " --tensor 2MiB";
  }
};

TEST_F(FullGrowingPoolTest, EngineWhoseWeightsFillTheGpuServes) {
  const auto mail = Start("mail", mail_port_, "128MiB");
  EXPECT_TRUE(Eventually([&] {
    return Ask(*mail, Prompt(1, 10)).status == 200;
  })) << "the proxy has not seen that it serves";
  AskAndCompare(*mail, 1);
}

// A pool that gives nothing to engines that start.
class GrownPoolTest : public GrowingPoolTest {
 protected:
  std::vector<std::string> daemon_flags() const override {
    return {"--pool", "auto", "--reserve", "168MiB", "--headroom", "16MiB"};
  }
};

// True if a thread of the process has this name.
bool HasThread(pid_t pid, const std::string& name) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string line;
    std::getline(std::ifstream(task.path() / "comm"), line);
    if (line == name) return true;
  }
  return false;
}

// The engine's view comes back first, and maps slabs that then have to leave
// the pool. The view's keeper releases them.
TEST_F(GrownPoolTest, EngineComesBackInMemoryThatThePoolHasTaken) {
  Evict("chat");
  const uint32_t absent = SlabsIn(abi::SlabState::kAbsent);
  const auto other = LaunchPreloaded(
      {"view_engine", "--page", "33792", "--watermark", "100000"}, {});
  EXPECT_THAT(other->ReadLine(), StartsWith("ready"));
  EXPECT_TRUE(Eventually([&] {  // "code" leaves, too
    other->Ask("idle 20");
    return SlabsIn(abi::SlabState::kAbsent) + 14 <= absent;
  }));
  other->Ask("watermark 0");
  EXPECT_THAT(other->Ask("step"), StartsWith("ok"));
  AskAndCompare(*chat_, 1);
  EXPECT_TRUE(HasThread(chat_->process().pid(), "fineserve-view"));
  EXPECT_THAT(other->Ask("exit"), "ok exit");
}

class FleetLargerThanItsGpuTest : public ServingSite {
 protected:
  static constexpr uint32_t kModels = 6;

  void SetUp() override { Begin("240MiB", /*floor_blocks=*/"0"); }

  // "0": an engine's longest request.
  void Begin(const char* gpu_memory, const char* floor_blocks) {
    Set("EMUCUDA_MEMORY", gpu_memory);
    std::vector<Served> fleet;
    for (uint32_t m = 0; m < kModels; ++m) {
      const std::string name = "model-" + std::to_string(m);
      models_.emplace_back(name);
      fleet.push_back(TinyserveOf(name, {"--floor", floor_blocks}));
    }
    WriteFleet(fleet, "fail_open");
    StartDaemonOfFleet();
    up_ = LaunchUp();
    for (std::string line = up_->ReadLine();
         line.find("(6 of 6 serving)") == line.npos; line = up_->ReadLine()) {
      ASSERT_EQ(line.find("ended"), line.npos) << line;
    }
    StartProxy();
  }
  void AskAndCompare(const TinyModel& model, uint32_t number) {
    const std::string prompt = Prompt(number, 100);
    const HttpResponse answer = HttpClient(port()).Ask(
        "POST", "/v1/completions", model.Body(prompt, 20),
        "x-slo-ttft-ms: 120000\r\n");
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(TextOf(answer), model.Expected(prompt, 20));
  }

  void AskAllInTurns() {
    std::vector<std::thread> clients;
    for (uint32_t c = 0; c < 4; ++c) {
      clients.emplace_back([this, c] {
        for (uint32_t n = 0; n < 2 * kModels; ++n) {
          AskAndCompare(models_[(5 * n + c) % kModels], 100 * c + n);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    // One that is asked alone.
    for (const TinyModel& model : models_) AskAndCompare(model, 7);
  }

  std::vector<TinyModel> models_;
  std::unique_ptr<Process> up_;
};

TEST_F(FleetLargerThanItsGpuTest, AllModelsStartAndAnswerInTurns) {
  AskAllInTurns();
}

// The weights of all six engines fit, but only two of their floors do: each
// floor is three of the pool's eight slabs.
class FloorsLargerThanThePoolTest : public FleetLargerThanItsGpuTest {
 protected:
  void SetUp() override { Begin("1GiB", /*floor_blocks=*/"384"); }
};

TEST_F(FloorsLargerThanThePoolTest, AllModelsStartAndAnswerInTurns) {
  AskAllInTurns();
}

class IdleModelTest : public EvictedModelTest {
 protected:
  int evict_after_s() const override { return 1; }
};

TEST_F(IdleModelTest, LeavesByItselfAndARequestBringsItBack) {
  for (uint32_t round = 0; round < 2; ++round) {
    EXPECT_TRUE(Eventually([&] {
      const std::string engines = Fsctl({"engines"}).out;
      return engines.find(" evicted ") != engines.npos;
    }));
    EXPECT_THAT(Fsctl({"status"}).out,
                HasSubstr("engine chat is evicted: its 64 MiB"));
    AskAndCompare(*chat_, round);
  }
}

}  // namespace
}  // namespace fineserve::integration
