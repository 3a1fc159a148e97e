// Engines that fsctl up starts when a request waits for them, and stops when
// none has come for a while, or when others need their place.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/fleet/door/door.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Models of 64 MiB that start on request, on a GPU with room for two.
class StartOnRequestTest : public ServingSite {
 protected:
  static constexpr uint32_t kModels = 4;

  void Begin(int stop_after_s) {
    Set("EMUCUDA_MEMORY", "240MiB");
    std::vector<Served> fleet;
    for (uint32_t m = 0; m < kModels; ++m) {
      const std::string name = "model-" + std::to_string(m);
      models_.emplace_back(name);
      fleet.push_back(TinyserveOf(name));
      fleet.back().on_request = true;
      fleet.back().stop_after_s = stop_after_s;
    }
    WriteFleet(fleet, "fail_open");
    StartDaemonOfFleet();
    up_ = LaunchUp();
    StartProxy();
  }
  HttpResponse Ask(const TinyModel& model, uint32_t number,
                   const std::string& headers = "") {
    return HttpClient(port()).Ask("POST", "/v1/completions",
                                  model.Body(Prompt(number, 100), 20), headers);
  }
  void AskAndCompare(const TinyModel& model, uint32_t number) {
    const HttpResponse answer = Ask(model, number);
    EXPECT_EQ(answer.status, 200) << answer.body << up_->Stderr();
    EXPECT_EQ(TextOf(answer), model.Expected(Prompt(number, 100), 20));
  }
  // Waits for an event of fsctl up, and returns its line.
  std::string Await(const std::string& event) {
    for (std::string line = up_->ReadLine(); !line.empty();
         line = up_->ReadLine()) {
      if (line.find(event) != line.npos) return line;
    }
    ADD_FAILURE() << "fsctl up has ended before: " << event;
    return "";
  }

  std::vector<TinyModel> models_;
  std::unique_ptr<Process> up_;
};

TEST_F(StartOnRequestTest, MoreModelsThanFitAnswerInTurns) {
  Begin(/*stop_after_s=*/0);
  EXPECT_THAT(Fsctl({"status"}).out, Not(HasSubstr("engine model-")));
  for (uint32_t n = 0; n < 2 * kModels; ++n) {
    AskAndCompare(models_[n % kModels], n);
  }
}

TEST_F(StartOnRequestTest, PlaceGoesToTheEngineForWhichAnotherStopped) {
  Begin(/*stop_after_s=*/0);
  AskAndCompare(models_[0], 0);
  AskAndCompare(models_[1], 1);
  std::thread third([this] { AskAndCompare(models_[2], 2); });
  Await("model-0: idle, and the start of model-2 has failed");
  // It comes first in the fleet, and could start at once when it has ended.
  std::thread first([this] { AskAndCompare(models_[0], 3); });
  EXPECT_THAT(Await("started, pid"), HasSubstr("model-2: "));
  third.join();
  first.join();
}

// A proxy for which the test decides which requests it has for one engine.
class ProxyDoor {
 public:
  ProxyDoor(const std::string& folder, const std::string& engine)
      : engine_(engine),
        door_(*apply::Door::Open(
            folder, apply::ProcessDoor("proxy"),
            [this](const apply::Question&) { return Answer(); })),
        thread_([this] {
          while (!ends_) {
            pollfd knock = {door_->descriptor(), POLLIN, 0};
            poll(&knock, 1, /*timeout=*/100);
            door_->Turn();
          }
        }) {}
  ~ProxyDoor() {
    ends_ = true;
    thread_.join();
  }

  std::atomic<uint64_t> waiting{0}, running{0};
  std::atomic<double> idle_s{0};

 private:
  apply::Answer Answer() const {
    apply::Answer answer;
    answer.process = "fineserve-proxy";
    apply::EngineState& engine = answer.engines.emplace_back();
    engine.name = engine_;
    engine.waiting = waiting;
    engine.running = running;
    engine.idle_s = idle_s;
    return answer;
  }

  const std::string engine_;
  std::atomic<bool> ends_{false};
  const std::unique_ptr<apply::Door> door_;
  std::thread thread_;
};

TEST_F(StartOnRequestTest, EngineThatIsAboutToStopGoesOnIfARequestComes) {
  Served served = TinyserveOf("model");
  served.on_request = true;
  served.stop_after_s = 1;
  WriteFleet({served}, "fail_open");
  StartDaemonOfFleet();
  up_ = LaunchUp();
  ProxyDoor proxy(folder() + "/run", "model");
  proxy.waiting = 1;
  Await("serving after");
  proxy.waiting = 0;
  proxy.running = 1;  // a last one, which the engine still answers
  proxy.idle_s = 100;
  Await("no request for 100 s: stop");
  proxy.waiting = 1;
  proxy.idle_s = 0;
  Await("requests wait for it: goes on");
  proxy.waiting = proxy.running = 0;
  proxy.idle_s = 100;
  Await("no request for 100 s: stop");
  Await("the next request starts it");
}

TEST_F(StartOnRequestTest, RequestThatNeedsNoAdmissionStartsItsEngine) {
  Begin(/*stop_after_s=*/0);
  const HttpResponse answer =
      HttpClient(port()).Ask("POST", "/tokenize", models_[0].Body("a b", 1));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("\"count\""));
}

TEST_F(StartOnRequestTest, EngineStopsWhenNoRequestHasComeForAWhile) {
  Begin(/*stop_after_s=*/1);
  std::vector<std::thread> clients;
  for (uint32_t c = 0; c < 4; ++c) {
    clients.emplace_back([this, c] { AskAndCompare(models_[0], c); });
  }
  for (std::thread& client : clients) client.join();
  Await("stopping it");
  Await("the next request starts it");
  EXPECT_THAT(Fsctl({"status"}).out, Not(HasSubstr("engine model-")));
  AskAndCompare(models_[0], 9);
}

TEST_F(StartOnRequestTest, RequestsStartNoEngineThatAnOperatorStopped) {
  Begin(/*stop_after_s=*/0);
  AskAndCompare(models_[0], 1);
  const Finished stop = Fsctl({"stop", "model-0"});
  EXPECT_EQ(stop.code, 0) << stop.err;
  const HttpResponse refused = Ask(models_[0], 2);
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(Fsctl({"start", "model-0"}).code, 0);
  AskAndCompare(models_[0], 3);
}

TEST_F(StartOnRequestTest, RequestWithAShorterSloIsRefusedWithTheTimeToWait) {
  Begin(/*stop_after_s=*/1);
  AskAndCompare(models_[0], 1);  // its start is measured
  Await("the next request starts it");
  const HttpResponse refused = Ask(models_[0], 2, "x-slo-ttft-ms: 1\r\n");
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  Await("started, pid");
}

TEST_F(StartOnRequestTest,
       EngineWhoseStartFailsIsWrongAndItsRequestsAreRefused) {
  models_.emplace_back("broken");
  Served broken = {"broken", 4096, process::FreePort()};
  broken.on_request = true;
  broken.command = {"false"};
  WriteFleet({broken}, "fail_open");
  StartDaemonOfFleet();
  up_ = LaunchUp();
  StartProxy();
  const HttpResponse refused = Ask(models_[0], 1);
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("has failed to serve"));
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_THAT(Fsctl({"status"}).out,
              AllOf(HasSubstr("engine broken"), HasSubstr("is down for")));
}

TEST_F(StartOnRequestTest, RequestOutlivesAKilledFsctlUp) {
  Begin(/*stop_after_s=*/0);
  up_->EndBy(SIGKILL);
  std::thread client([this] { AskAndCompare(models_[0], 1); });
  up_ = LaunchUp();
  client.join();
  // The engine continues without fsctl up, and the next fsctl up adopts it.
  up_->EndBy(SIGKILL);
  AskAndCompare(models_[0], 2);
  up_ = LaunchUp();
  Await("adopted");
  AskAndCompare(models_[0], 3);
  const Finished restart = Fsctl({"restart", "model-0"});
  EXPECT_EQ(restart.code, 0) << restart.err;
  EXPECT_THAT(restart.out, HasSubstr("model-0: serving"));
  AskAndCompare(models_[0], 4);
}

}  // namespace
}  // namespace fineserve::integration
