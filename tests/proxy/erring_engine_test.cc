// Load on two replicas of which one errs: its clients do not notice.

#include <gtest/gtest.h>

#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

enum class Manner {
  kGood,
  kErrs,        // 500 at once
  kErrsByHalf,  // every second time
  kErrsLate,    // an error event behind its head
  kResets,      // closes instead of an answer
  kHangs,       // takes connections and says nothing, to probes neither
};

const char kGoodStream[] = "data: 1\n\n";

// Serves each connection in a thread of its own until its other end closes.
class ThreadedEngine {
 public:
  ThreadedEngine(Listener* at, Manner manner)
      : at_(at), manner_(manner), acceptor_([this] { AcceptAll(); }) {}
  ~ThreadedEngine() {
    ends_ = true;
    const Peer last = Peer::To(at_->port());
    acceptor_.join();
    for (std::thread& connection : connections_) connection.join();
  }

  int requests() const { return requests_; }

 private:
  void AcceptAll() {
    for (;;) {
      Peer peer = at_->AcceptAny();
      if (ends_) return;
      connections_.emplace_back(
          [this, peer = std::move(peer)]() mutable { Serve(&peer); });
    }
  }

  void Serve(Peer* peer) {
    for (;;) {
      const Peer::Message request = peer->ReceiveMessage();
      if (request.head.empty()) return;
      const bool is_probe = request.head.rfind("GET ", 0) == 0;
      if (manner_ == Manner::kHangs) continue;  // until the other end closes
      if (is_probe) return peer->Send(Plain("{}"));
      const std::string answer = Answer(requests_++);
      if (answer.empty()) return peer->Abort();
      peer->Send(answer);
    }
  }

  // Empty: none.
  std::string Answer(int turn) const {
    static constexpr char kError[] =
        "HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno";
    switch (manner_) {
      case Manner::kErrs:
        return kError;
      case Manner::kErrsByHalf:
        if (turn % 2 == 0) return kError;
        break;
      case Manner::kErrsLate:
        return kStreamHead + Chunk("data: {\"error\":{}}\n\n") + kLastChunk;
      case Manner::kResets:
        return "";
      case Manner::kGood:
      case Manner::kHangs:
        break;
    }
    return kStreamHead + Chunk(kGoodStream) + kLastChunk;
  }

  Listener* const at_;
  const Manner manner_;
  std::atomic<bool> ends_{false};
  std::atomic<int> requests_{0};
  std::list<std::thread> connections_;  // of acceptor_ until it has ended
  std::thread acceptor_;
};

struct Case {
  const char* name;
  Manner manner;
  const char* error;  // that is counted
  // Of the requests, how many the engine may be sent.
  int most;
};

class ErringEngineTest : public ProxyTest,
                         public ::testing::WithParamInterface<Case> {
 protected:
  static constexpr int kClients = 8;
  static constexpr int kRequests = 25;  // of each

  // How many of one client's requests were answered as they must be.
  int Right() {
    Peer client = Client();
    int right = 0;
    for (int i = 0; i < kRequests; ++i) {
      client.Send(
          Post("/v1/chat/completions", kStream, "x-slo-ttft-ms: 500\r\n"));
      const std::string answer = client.ReceiveUntil(kLastChunk);
      right += answer.rfind("HTTP/1.1 200", 0) == 0 &&
               answer.find(kGoodStream) != std::string::npos;
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

// It may have kClients requests before the first error is known.
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
