#include "tests/proxy/threaded_engine.h"

#include <utility>

namespace fineserve::proxy_tests {

const char kAnswer[] = "data: 1\n\n";

ThreadedEngine::ThreadedEngine(Listener* at, Manner manner)
    : at_(at), manner_(manner), acceptor_([this] { AcceptAll(); }) {}

ThreadedEngine::~ThreadedEngine() {
  ends_ = true;
  const Peer last = Peer::To(at_->port());
  acceptor_.join();
  for (std::thread& connection : connections_) connection.join();
}

void ThreadedEngine::AcceptAll() {
  for (;;) {
    Peer peer = at_->AcceptAny();
    if (ends_) return;
    connections_.emplace_back(
        [this, peer = std::move(peer)]() mutable { Serve(&peer); });
  }
}

void ThreadedEngine::Serve(Peer* peer) {
  for (;;) {
    const Peer::Message request = peer->ReceiveMessage();
    if (request.head.empty()) return;
    if (manner_ == Manner::kHangs) continue;
    const bool is_probe = request.head.rfind("GET ", 0) == 0;
    if (is_probe) return peer->Send(Plain("{}"));
    const std::string answer = Answer(requests_++);
    if (answer.empty()) return peer->Abort();
    peer->Send(answer);
  }
}

std::string ThreadedEngine::Answer(int turn) const {
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
  return kStreamHead + Chunk(kAnswer) + kLastChunk;
}

}  // namespace fineserve::proxy_tests
