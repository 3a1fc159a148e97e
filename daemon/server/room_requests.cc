// The part of SocketServer that makes room for what is not KV: slabs leave the
// pool, and idle engines leave the GPU.

#include "daemon/server/peer_connection.h"
#include "daemon/server/pool_sizing.h"
#include "daemon/server/socket_server.h"

namespace fineserve::server {
namespace {

// An engine that waits asks several times a second, and one that has failed
// is tried again each second.
constexpr uint64_t kTurnNs = 2'000'000'000;

}  // namespace

bool SocketServer::HandleRoom(PeerConnection* c, const abi::RoomRequest& r) {
  auto answer = abi::MakeMessage<abi::RoomAnswer>(r.header.sequence);
  if (sizing_ != nullptr) {
    answer.coming_bytes = sizing_->Ask(c->engine, c->peer.pid, r.bytes);
  }
  if (r.bytes == 0) HasRoom(c->engine);
  if (r.bytes != 0 && answer.coming_bytes == 0 && MakesRoom(c->engine)) {
    answer.coming_bytes = r.bytes;
  }
  return abi::Send(c->socket.get(), answer) == 0;
}

bool SocketServer::MakesRoom(slab::EngineId engine) {
  if (MustWaitForRoom(engine)) return true;
  makes_room_for_ = engine;
  turn_ends_ns_ = clock_->NowNs() + kTurnNs;
  return moves_.AnyLeaves() || make_room_(engine);
}

bool SocketServer::MustWaitForRoom(slab::EngineId engine) const {
  return makes_room_for_ && *makes_room_for_ != engine &&
         clock_->NowNs() < turn_ends_ns_;
}

void SocketServer::HasRoom(slab::EngineId engine) {
  if (makes_room_for_ == engine) makes_room_for_.reset();
}

}  // namespace fineserve::server
