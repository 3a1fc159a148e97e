// Replicas on two GPUs, and chats that continue.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/proxy/site.h"
#include "tools/lab/stage/fleet_text.h"

namespace fineserve::proxy_tests {
namespace {

using process::Eventually;

class AffinityTest : public ProxyTest {
 protected:
  // Starts the proxy. "wide" has the engines w0 and w1 on two GPUs, whose
  // daemons are away.
  void StartWide() {
    Start("", {},
          stage::FleetText()
              .Model("wide",
                     {{"slo_ttft_ms", 60000},
                      {"kv_token_bytes", 131072},
                      {"profile", stage::TomlValue::Profile(8000, 110, 60)}})
              .Engine("w0", "wide", w0_.port(), {{"gpu", "GPU-0000aaaa"}})
              .Engine("w1", "wide", w1_.port(), {{"gpu", "GPU-1111bbbb"}})
              .text());
    ASSERT_TRUE(Eventually(
        [this] { return Get("/ready", /*admin=*/true).status() == 200; }));
  }
  // Sends a prompt of `bytes` bytes, and returns the engine that got it.
  Listener* Send(size_t bytes, char of, const std::string& fields = "") {
    clients_.push_back(Client());
    clients_.back().Send(
        Post("/v1/completions",
             R"({"model":"wide","prompt":")" + std::string(bytes, of) + R"("})",
             fields));
    EXPECT_TRUE(
        Eventually([this] { return !w0_.IsQuiet() || !w1_.IsQuiet(); }));
    Listener* const at = w0_.IsQuiet() ? &w1_ : &w0_;
    engines_.push_back(at->Accept());
    engines_.back().ReceiveMessage();
    return at;
  }
  // Plays one turn of a chat, with its answer, and returns the engine that got
  // it.
  Listener* Turn(size_t bytes, const std::string& fields = "") {
    Listener* const at = Send(bytes, 'x', fields);
    // The engine closes the connection, so the next request comes by a separate
    // one.
    engines_.back().Send(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
    EXPECT_EQ(clients_.back().ReceiveMessage().status(), 200);
    return at;
  }
  // Plays the first turn of a chat, and sends other requests, so that the
  // chat's engine runs more than the other engine.
  Listener* BeginChat(size_t bytes, const std::string& fields = "") {
    Listener* const less = Send(bytes / 40, 'y');
    Listener* const its = Turn(bytes, fields);
    EXPECT_NE(its, less);
    EXPECT_EQ(Send(bytes / 4, 'z'), its);
    return its;
  }

  Listener w0_, w1_;
  std::vector<Peer> clients_, engines_;
};

TEST_F(AffinityTest, ChatStaysWhereItsHistoryIs) {
  StartWide();
  Listener* const its = BeginChat(8192);
  for (size_t turn = 1; turn <= 8; ++turn) {
    EXPECT_EQ(Turn(8192 + turn * 1500), its) << turn;
  }
  EXPECT_NE(Send(8192, 'w'), its) << "another chat";
}

TEST_F(AffinityTest, SessionStaysByItsName) {
  StartWide();
  const char kSession[] = "x-session-id: s1\r\n";
  // The turns are so short that none of their blocks is hashed.
  Listener* const its = BeginChat(900, kSession);
  for (int turn = 0; turn < 8; ++turn) {
    EXPECT_EQ(Turn(900 - turn, kSession), its) << turn;
  }
  EXPECT_NE(Send(900, 'x'), its) << "of no session";
}

TEST_F(AffinityTest, ChatGoesElsewhereIfItsReplicaIsGone) {
  StartWide();
  Listener* const its = BeginChat(8192);
  its->Close();
  clients_.push_back(Client());
  clients_.back().Send(
      Post("/v1/completions",
           R"({"model":"wide","prompt":")" + std::string(9000, 'x') + R"("})"));
  Peer engine = (its == &w0_ ? w1_ : w0_).Accept();
  engine.Answer(Plain(kAnswered));
  EXPECT_EQ(clients_.back().ReceiveMessage().status(), 200);
}

}  // namespace
}  // namespace fineserve::proxy_tests
