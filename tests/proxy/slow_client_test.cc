// Clients that read their answers very slowly: their places are not kept
// forever.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/proxy/admission_site.h"

namespace fineserve::proxy_tests {
namespace {

proxy::Limits ShortClientPatience() {
  proxy::Limits limits;
  limits.stall_s = 1;
  limits.least_rate = 1 << 20;
  return limits;
}

class SlowClientTest : public AdmissionSite {
 protected:
  SlowClientTest() : AdmissionSite(false, ShortClientPatience()) {}
};

// The client reads something all the time, but less than the least rate.
TEST_F(SlowClientTest, AnswerThatIsTakenInDropsIsCutOff) {
  Peer client = Peer::To(port_, /*room=*/4096);
  ASSERT_TRUE(client.is_open());
  const std::string body = R"({"model":"m","prompt":"x"})";
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  Peer engine = a_.Accept();
  engine.Answer("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
  const std::string block(1 << 20, 'x');
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool closed = false;
  while (!closed && std::chrono::steady_clock::now() < end) {
    engine.SendNow(block);
    client.Receive(1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    closed = Metric("fineserve_connections") < 2;
  }
  EXPECT_TRUE(closed);
}

}  // namespace
}  // namespace fineserve::proxy_tests
