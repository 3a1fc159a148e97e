#include "daemon/proxy/admission/engine_health.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock/clock.h"
#include "daemon/proxy/admission/gpu_admission.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::proxy {
namespace {

using Health = Liveness::Health;

void Miss(Liveness* engine, uint32_t times, bool progressed = false) {
  for (uint32_t i = 0; i < times; ++i) {
    engine->Missed(Health::kDoesNot, progressed);
  }
}

TEST(LivenessTest, EngineThatServedMayMissAFewProbes) {
  Liveness engine;
  engine.Answered(Health::kServes);
  Miss(&engine, Liveness::kMost - 1);
  EXPECT_EQ(engine.health(), Health::kServes);
  Miss(&engine, 1);
  EXPECT_EQ(engine.health(), Health::kDoesNot);
  engine.Answered(Health::kServes);
  EXPECT_EQ(engine.health(), Health::kServes);
  EXPECT_EQ(engine.misses(), 0u);
}

TEST(LivenessTest, ProgressMakesUpForMisses) {
  Liveness engine;
  engine.Answered(Health::kServes);
  Miss(&engine, 10 * Liveness::kMost, /*progressed=*/true);
  EXPECT_EQ(engine.health(), Health::kServes);
  EXPECT_EQ(engine.misses(), 0u);
}

TEST(LivenessTest, OneThatHasNotServedYetDoesNot) {
  Liveness engine;
  engine.Missed(Health::kUnreachable, false);
  EXPECT_EQ(engine.health(), Health::kUnreachable);
  engine.Missed(Health::kDoesNot, false);
  EXPECT_EQ(engine.health(), Health::kDoesNot);
}

TEST(LivenessTest, AnswerCountsAtOnce) {
  Liveness engine;
  engine.Answered(Health::kServes);
  engine.Answered(Health::kDoesNot);
  EXPECT_EQ(engine.health(), Health::kDoesNot);
}

// A port on 127.0.0.1 that takes connections into its queue, and answers none.
class SilentPort {
 public:
  SilentPort() : listener_(Socket()) {
    socklen_t size = sizeof(at_);
    EXPECT_EQ(bind(listener_.get(), Address(), size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), Address(), &size), 0);
  }

  uint16_t port() const { return ntohs(at_.sin_port); }
  void Close() { listener_.Reset(); }
  // Fills the queue until connections to the port neither succeed nor fail, as
  // on a machine that is out of reach: the kernel drops what a full queue
  // cannot take.
  void FillQueue() {
    constexpr int kMoreThanItTakes = 8;
    for (int i = 0; i < kMoreThanItTakes; ++i) {
      queue_.push_back(Socket());
      connect(queue_.back().get(), Address(), sizeof(at_));
    }
    pollfd last = {queue_.back().get(), POLLOUT, 0};
    EXPECT_EQ(poll(&last, 1, 50), 0) << "its queue takes all";
  }

 private:
  static driver::Descriptor Socket() {
    return driver::Descriptor(
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  }
  sockaddr* Address() { return reinterpret_cast<sockaddr*>(&at_); }

  sockaddr_in at_ = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  driver::Descriptor listener_;
  std::vector<driver::Descriptor> queue_;
};

class EngineHealthTest : public ::testing::Test {
 protected:
  EngineHealthTest() {
    auto fleet = std::make_shared<config::Fleet>();
    fleet->proxy.fail_open = true;
    fleet->models.resize(1);
    fleet->models[0].name = "m";
    fleet->engines.resize(1);
    fleet->engines[0] = {};
    fleet->engines[0].name = "a";
    fleet->engines[0].model = "m";
    fleet->engines[0].host = "127.0.0.1";
    fleet->engines[0].port = port_.port();
    admission_ = std::make_unique<GpuAdmission>(fleet, &clock_);
    admission_->GoOn();
  }

  void AskForAWhile() {
    health_ = std::make_unique<EngineHealth>(&io_, admission_.get(), &clock_);
    health_->Start();
    io_.run_for(std::chrono::milliseconds(2500));
    EXPECT_FALSE(admission_->states().Serves("a"));
  }
  // Returns why a request is refused; empty if it is not.
  std::string Refused() {
    AdmissionRequest request;
    request.id = ++last_;
    request.model = "m";
    std::string why;
    admission_->Submit(request, [&](const Verdict& v) { why = v.why; });
    return why;
  }

  SilentPort port_;
  ManualClock clock_;
  std::unique_ptr<GpuAdmission> admission_;
  boost::asio::io_context io_;
  std::unique_ptr<EngineHealth> health_;
  uint64_t last_ = 0;
};

TEST_F(EngineHealthTest, WhereNothingTakesAConnectionNothingIsSent) {
  port_.FillQueue();
  AskForAWhile();
  // On a busy machine the first question may come late.
  for (int i = 0; i < 600 && Refused().empty(); ++i) {
    io_.run_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(Refused(),
            "each engine that serves m is out of reach or about to end");
}

TEST_F(EngineHealthTest, AnEngineThatTakesConnectionsMayServeAtAnyMoment) {
  AskForAWhile();
  EXPECT_EQ(Refused(), "");
}

TEST_F(EngineHealthTest, AnEngineThatIsNotThereMayComeAtAnyMoment) {
  port_.Close();
  AskForAWhile();
  EXPECT_EQ(Refused(), "");
}

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ServedModelsTest, ModelThatIsListedIsNoTrouble) {
  EXPECT_EQ(TroubleOfModels(
                R"({"object":"list","data":[{"id":"lora"},{"id":"m"}]})", "m"),
            "");
}

TEST(ServedModelsTest, ModelThatIsNotListedIs) {
  const std::string trouble =
      TroubleOfModels(R"({"data":[{"id":"other\u001b[2J"}]})", "m");
  EXPECT_THAT(trouble, HasSubstr("it serves \"other\\x1b[2J\", not \"m\""));
  EXPECT_THAT(trouble, Not(HasSubstr("\x1b")));
  EXPECT_THAT(TroubleOfModels(R"({"data":[{"id":"a"},{"id":"b"},{"id":"c"},)"
                              R"({"id":"d"},{"id":"e"}]})",
                              "m"),
              HasSubstr("\"d\" and others"));
}

TEST(ServedModelsTest, OtherTextNamesNoModels) {
  for (const char* body :
       {"", "{", "[]", "null", R"({"data":[]})", R"({"data":{"id":"x"}})",
        R"({"data":[{"id":7},1,null]})", R"({"error":"no key"})"}) {
    EXPECT_EQ(TroubleOfModels(body, "m"), "") << body;
  }
}

}  // namespace

}  // namespace fineserve::proxy
