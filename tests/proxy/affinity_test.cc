// Replicas on two GPUs, and chats that go on.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using integration::Eventually;

class AffinityTest : public ProxyTest {
 protected:
  // "wide" has the engines w0 and w1 on two GPUs, whose daemons are away.
  void StartWide() {
    const auto engine = [](const char* name, const char* gpu,
                           const Listener& at) {
      return std::string("[[engine]]\nname = \"") + name +
             "\"\nmodel = \"wide\"\ngpu = \"" + gpu +
             "\"\nurl = \"http://127.0.0.1:" + std::to_string(at.port()) +
             "\"\n";
    };
    Start("", {},
          "[[model]]\nname = \"wide\"\nslo_ttft_ms = 60000\n"
          "kv_token_bytes = 131072\nprofile = { base_us = 8000, "
          "per_token_us = 110, per_sequence_us = 60 }\n" +
              engine("w0", "GPU-0000aaaa", w0_) +
              engine("w1", "GPU-1111bbbb", w1_));
    ASSERT_TRUE(Eventually(
        [this] { return Get("/ready", /*admin=*/true).status() == 200; }));
  }
  // One turn of a chat of `history` bytes, which runs until the test's end.
  // Returns its engine. Without a reason the other one, which runs less, would
  // get the next turn.
  const Listener* Ask(size_t history, const std::string& fields = "") {
    clients_.push_back(Client());
    Peer& client = clients_.back();
    client.Send(Post(
        "/v1/completions",
        R"({"model":"wide","prompt":")" + std::string(history, 'x') + R"("})",
        fields));
    EXPECT_TRUE(
        Eventually([this] { return !w0_.IsQuiet() || !w1_.IsQuiet(); }));
    Listener* const at = w0_.IsQuiet() ? &w1_ : &w0_;
    engines_.push_back(at->Accept());
    engines_.back().ReceiveMessage();
    return at;
  }

  Listener w0_, w1_;
  std::vector<Peer> clients_, engines_;
};

TEST_F(AffinityTest, ChatsThatShareNothingGoWhereLessRuns) {
  StartWide();
  EXPECT_NE(Ask(900), Ask(901));
}

TEST_F(AffinityTest, ChatStaysWhereItsHistoryIs) {
  StartWide();
  const Listener* const first = Ask(8192);
  for (size_t turn = 1; turn <= 8; ++turn) {
    EXPECT_EQ(Ask(8192 + turn * 1500), first) << turn;
  }
}

TEST_F(AffinityTest, SessionStaysByItsName) {
  StartWide();
  const char kSession[] = "x-session-id: s1\r\n";
  // Short ones, of which no block is hashed.
  const Listener* const first = Ask(900, kSession);
  for (int turn = 0; turn < 8; ++turn) {
    EXPECT_EQ(Ask(900 - turn, kSession), first) << turn;
  }
}

TEST_F(AffinityTest, ChatGoesElsewhereIfItsReplicaIsGone) {
  StartWide();
  const Listener* const first = Ask(8192);
  Listener* const its = first == &w0_ ? &w0_ : &w1_;
  its->Close();
  Peer client = Client();
  client.Send(Post("/v1/completions", R"({"model":"wide","prompt":")" +
                                          std::string(9000, 'x') + R"("})"));
  Peer engine = (first == &w0_ ? w1_ : w0_).Accept();
  engine.ReceiveMessage();
  engine.Send(Plain(kAnswered));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
}

}  // namespace
}  // namespace fineserve::proxy_tests
