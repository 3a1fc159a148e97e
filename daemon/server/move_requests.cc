// The part of SocketServer that moves engines' resident memory: it carries out
// the decisions of MoveBook.

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log/log.h"
#include "daemon/server/peer_connection.h"
#include "daemon/server/socket_server.h"

namespace fineserve::server {

using abi::Place;
using abi::RefusalCode;

namespace {

// Between two tries to bring back an engine that requests wait for.
constexpr uint64_t kTryAgainNs = 1'000'000'000;

}  // namespace

// A connection's place in memory is its own for as long as it lives.
uint64_t SocketServer::NumberOf(const PeerConnection* c) {
  return reinterpret_cast<uintptr_t>(c);
}

bool SocketServer::HandleMover(PeerConnection* c, abi::Received* received) {
  abi::MoveReport report;
  if (!received->As(&report) || !abi::IsTerminated(report.why)) {
    Dropped();
    return false;
  }
  const bool is_out = report.place == Place::kHost;
  if (is_out && received->descriptor_count() == 1) {
    c->copy.Reset(received->TakeDescriptor(0));
  } else if (!is_out) {
    c->copy.Reset();
    needed_ns_.erase(c->engine);
    short_of_room_.erase(c->engine);
  }
  if (report.order != 0 && report.failed != 0) {
    log::Warning("engine {} (pid {}): its memory was not moved: {}",
                 slab::Number(c->engine), c->peer.pid, report.why);
  }
  c->move_sequence = report.header.sequence;
  moves_.Report(MoveBook::MoverId{NumberOf(c)}, c->engine, report);
  CarryOutMoves();
  if (report.order != 0 && report.lacks_room != 0) {
    short_of_room_.insert(c->engine);
    make_room_();
  } else if (report.order != 0 && is_out && report.failed == 0) {
    UseRoom();
  }
  return true;
}

bool SocketServer::HandleMove(PeerConnection* c, const abi::MoveRequest& r) {
  if (r.to != Place::kGpu && r.to != Place::kHost) {
    return Refuse(c, r.header.sequence, RefusalCode::kMove,
                  "memory can move to the GPU or to the host only");
  }
  c->move_sequence = r.header.sequence;
  moves_.Ask(MoveBook::AskerId{NumberOf(c)}, slab::EngineId{r.engine_id}, r.to);
  CarryOutMoves();
  return true;
}

void SocketServer::Need(slab::EngineId engine) {
  const uint64_t now_ns = clock_->NowNs();
  const auto tried = needed_ns_.find(engine);
  if (tried != needed_ns_.end() && now_ns < tried->second + kTryAgainNs) return;
  if (!moves_.Need(engine)) return;
  needed_ns_[engine] = now_ns;
  log::Info("engine {}: requests wait for it: bringing its memory back",
            slab::Number(engine));
  CarryOutMoves();
}

bool SocketServer::Evict(slab::EngineId engine) {
  if (!moves_.Leave(engine)) return false;
  CarryOutMoves();
  return true;
}

// Memory has come free: who lacked it tries again at once.
void SocketServer::UseRoom() {
  for (const slab::EngineId engine : std::exchange(short_of_room_, {})) {
    needed_ns_.erase(engine);
    Need(engine);
  }
}

void SocketServer::CarryOutMoves() {
  for (const MoveBook::Order& order : moves_.TakeOrders()) GiveOrder(order);
  for (MoveBook::Answer& answer : moves_.TakeAnswers()) {
    for (PeerConnection& c : connections_) {
      if (NumberOf(&c) != static_cast<uint64_t>(answer.asker)) continue;
      if (!answer.status.ok()) {
        Refuse(&c, c.move_sequence, RefusalCode::kMove,
               std::string(answer.status.message()));
        break;
      }
      abi::MoveDone done = answer.done;
      done.header = abi::MakeMessage<abi::MoveDone>(c.move_sequence).header;
      log::Info("engine {}: {} bytes are on the {}", done.engine_id, done.bytes,
                done.place == Place::kHost ? "host" : "GPU");
      abi::Send(c.socket.get(), done);
      break;
    }
  }
}

// An order that cannot be sent ends with its connection: the mover comes back
// on another one.
void SocketServer::GiveOrder(const MoveBook::Order& order) {
  for (PeerConnection& c : connections_) {
    if (NumberOf(&c) != static_cast<uint64_t>(order.mover)) continue;
    auto message = abi::MakeMessage<abi::MoveOrder>(c.move_sequence);
    message.order = order.number;
    message.to = order.to;
    if (order.to == Place::kHost) {
      c.copy.Reset(
          memfd_create("fineserve-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      if (!c.copy.valid()) {
        log::Warning("cannot make a copy for pid {}: {}", c.peer.pid,
                     strerror(errno));
      }
    }
    const int copy = c.copy.get();
    const uint32_t count = order.to == Place::kHost && c.copy.valid() ? 1 : 0;
    abi::Send(c.socket.get(), message, &copy, count);
    return;
  }
}

}  // namespace fineserve::server
