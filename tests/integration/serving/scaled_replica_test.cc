// Replicas that an autoscaler, played by the test, starts and ends: a replica
// that is away is no trouble, one that leaves loses no request, and the demand
// says how many are wanted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>

#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ScaledReplicaTest : public ServingSite {
 protected:
  void SetUp() override {
    chat_0_ = Replica("chat-0", "");
    chat_1_ = Replica("chat-1", "chat-0");
    WriteFleet({chat_0_, chat_1_}, "fail_closed");
    StartDaemonOfFleet(
        {"--metrics", "127.0.0.1:" + std::to_string(metrics_port_)});
    StartProxy();
  }
  Served Replica(const std::string& name, const std::string& of) const {
    Served served = TinyserveOf("chat-0");
    served.name = name;
    served.replica_of = of;
    served.scaled = true;
    served.max_batch = 2;
    return served;
  }
  // Starts a replica as the autoscaler does; returns once it gets requests.
  std::unique_ptr<Process> Begin(const Served& replica) {
    auto process =
        LaunchPreloaded(replica.command, {{"FINESERVE_ENGINE", replica.name}});
    EXPECT_TRUE(Eventually([&] { return Of(replica.name, "serves"); }))
        << process->Stderr();
    return process;
  }
  // True if `fsctl models` says `key` of the engine.
  bool Of(const std::string& engine, const std::string& key) {
    const std::string at =
        "/models/0/engines/" + std::string(engine == "chat-0" ? "0/" : "1/");
    return JsonAt(Fsctl({"models", "--json"}).out, at + key) == "true";
  }
  // -1: the page does not have it.
  double Wanted() const {
    const std::string page =
        HttpClient(metrics_port_).Ask("GET", "/metrics").body;
    const std::string sample =
        "\nfineserve_model_wanted_replicas{model=\"chat-0\"} ";
    const size_t at = page.find(sample);
    return at == page.npos ? -1 : atof(page.c_str() + at + sample.size());
  }

  const uint16_t metrics_port_ = process::FreePort();
  Served chat_0_, chat_1_;
  const TinyModel model_{"chat-0"};
};

TEST_F(ScaledReplicaTest, OneThatIsAwayIsNoTrouble) {
  const auto chat_0 = Begin(chat_0_);
  EXPECT_THAT(Fsctl({"models"}).out, HasSubstr("scaled away"));
  EXPECT_THAT(Fsctl({"status"}).out, Not(HasSubstr("engine chat-1")));
  const HttpResponse answer = HttpClient(port()).Ask("POST", "/v1/completions",
                                                     model_.Body("hello", 5));
  EXPECT_EQ(TextOf(answer), model_.Expected("hello", 5));
}

TEST_F(ScaledReplicaTest, OneThatIsDrainedAndEndsLosesNoRequest) {
  const auto chat_0 = Begin(chat_0_);
  auto chat_1 = Begin(chat_1_);
  AnswerLoad load(model_, port(), 8, {50, 200});
  EXPECT_TRUE(Eventually([&] { return Wanted() == 2; }))
      << Wanted() << " replicas are wanted";
  const Finished drained = Fsctl({"drain", "chat-1", "--wait", "120"});
  EXPECT_EQ(drained.code, 0) << drained.err;
  EXPECT_EQ(chat_1->EndBy(SIGTERM), 0);
  EXPECT_TRUE(Eventually([&] { return !Of("chat-1", "drains"); }))
      << "the drain ends with the engine";
  const int before = load.right();
  EXPECT_TRUE(Eventually([&] { return load.right() > before + 20; }));
  chat_1 = Begin(chat_1_);
  EXPECT_TRUE(Eventually([&] {
    return JsonInt(Fsctl({"models", "--json"}).out,
                   "/models/0/engines/1/running") > 0;
  })) << "the next one gets requests";
  load.End();
  EXPECT_EQ(load.lost(), 0);
  EXPECT_THAT(HttpClient(admin_port()).Ask("GET", "/metrics").body,
              Not(HasSubstr("status=\"503\"")))
      << "none found its model without an engine";
}

}  // namespace
}  // namespace fineserve::integration
