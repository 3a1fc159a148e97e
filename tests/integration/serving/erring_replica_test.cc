// Two replicas, one of which errs under load, on one GPU whose daemon admits.

#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/serving/serving_site.h"
#include "tests/proxy/threaded_engine.h"

namespace fineserve::integration {
namespace {

using proxy_tests::Listener;
using proxy_tests::Manner;
using proxy_tests::Peer;
using proxy_tests::ThreadedEngine;
using ::testing::HasSubstr;

class ErringReplicaTest : public ServingSite {
 protected:
  static constexpr int kClients = 8;
  static constexpr int kRequests = 25;  // of each

  void SetUp() override {
    WriteFleet({Engine("chat", a_, ""), Engine("chat-b", b_, "chat")},
               "fail_closed");
    StartDaemonOfFleet();
  }
  static Served Engine(const std::string& name, const Listener& at,
                       const std::string& replica_of) {
    Served served{name, 4096, at.port()};
    served.replica_of = replica_of;
    return served;
  }
  // Returns how many of one client's requests were answered correctly.
  int Right() const {
    Peer client = Peer::To(port());
    int right = 0;
    for (int i = 0; i < kRequests; ++i) {
      client.Send(proxy_tests::Post(
          "/v1/completions",
          R"({"model":"chat","prompt":"a b","max_tokens":1,"stream":true})"));
      const std::string answer = client.ReceiveUntil(proxy_tests::kLastChunk);
      right += answer.rfind("HTTP/1.1 200", 0) == 0 &&
               answer.find(proxy_tests::kAnswer) != std::string::npos;
    }
    return right;
  }

  Listener a_, b_;
};

TEST_F(ErringReplicaTest, NoClientNoticesAndStatusSaysIt) {
  ThreadedEngine errs(&a_, Manner::kErrs), good(&b_, Manner::kGood);
  StartProxy();
  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] { right += Right(); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, kClients * kRequests);
  EXPECT_LE(errs.requests(), kClients + 16);
  EXPECT_TRUE(Eventually([this] {
    return Fsctl({"status"}).out.find("status of 500 or more") !=
           std::string::npos;
  }));
  EXPECT_THAT(Fsctl({"models"}).out, HasSubstr("status of 500 or more"));
  proxy_.reset();
}

}  // namespace
}  // namespace fineserve::integration
