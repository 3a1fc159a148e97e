// Load on two replicas, one of which errs. Its clients do not notice.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/proxy/site.h"
#include "tests/proxy/threaded_engine.h"

namespace fineserve::proxy_tests {
namespace {

struct Case {
  const char* name;
  Manner manner;
  const char* error;  // that is counted
  // Limit on the requests that the engine may be sent.
  int most;
};

class ErringEngineTest : public ProxyTest,
                         public ::testing::WithParamInterface<Case> {
 protected:
  static constexpr int kClients = 8;
  static constexpr int kRequests = 25;  // of each

  // Returns how many of one client's requests were answered correctly.
  int Right() {
    Peer client = Client();
    int right = 0;
    for (int i = 0; i < kRequests; ++i) {
      client.Send(
          Post("/v1/chat/completions", kStream, "x-slo-ttft-ms: 500\r\n"));
      const std::string answer = client.ReceiveUntil(kLastChunk);
      right += answer.rfind("HTTP/1.1 200", 0) == 0 &&
               answer.find(kAnswer) != std::string::npos;
    }
    return right;
  }
  int RightInParallel() {
    std::atomic<int> right{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&] { right += Right(); });
    }
    for (std::thread& client : clients) client.join();
    return right;
  }
};

TEST_P(ErringEngineTest, NoClientNoticesWhileAReplicaServes) {
  ThreadedEngine errs(&a_, GetParam().manner), good(&b_, Manner::kGood);
  Start();
  EXPECT_EQ(RightInParallel(), kClients * kRequests);
  EXPECT_GE(Metric("fineserve_engine_errors_total{engine=\"a\",error=\"" +
                   std::string(GetParam().error) + "\"}"),
            1);
  EXPECT_LE(errs.requests(), GetParam().most);
  EXPECT_EQ(Metric("fineserve_requests_running"), 0);
  proxy_.reset();
}

// The engine may get kClients requests before the first error is known.
constexpr int kFew = 8 + 16;

INSTANTIATE_TEST_SUITE_P(
    Manners, ErringEngineTest,
    ::testing::Values(Case{"Errs", Manner::kErrs, "status", kFew},
                      Case{"ErrsByHalf", Manner::kErrsByHalf, "status", 100},
                      Case{"ErrsLate", Manner::kErrsLate, "event", kFew},
                      Case{"Resets", Manner::kResets, "reset", kFew},
                      Case{"Hangs", Manner::kHangs, "timeout", 0}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fineserve::proxy_tests
