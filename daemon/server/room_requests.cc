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
  answer.coming_bytes = ComingFor(*c, r.bytes);
  return abi::Send(c->socket.get(), answer) == 0;
}

// Slabs that no engine holds leave first, then idle engines, then slabs as
// their requests end; at last an engine that is never idle gives way.
uint64_t SocketServer::ComingFor(const PeerConnection& c, uint64_t bytes) {
  const bool starts = moves_.EvictedBytes(c.engine) == 0;
  const auto ask_pool = [&] {
    return sizing_ == nullptr
               ? 0
               : sizing_->Ask(c.engine, c.peer.pid, bytes, starts);
  };
  if (bytes == 0) {  // it has stopped waiting
    HasRoom(c.engine);
    return ask_pool();
  }
  const absl::optional<bool> has_idle =
      sizing_ == nullptr ? false : sizing_->HasIdle(bytes);
  if (!has_idle) return bytes;
  if (!*has_idle && MakesRoom(c.engine, /*may_rest=*/false)) return bytes;
  const uint64_t of_pool = ask_pool();
  if (of_pool != 0) return of_pool;
  return MakesRoom(c.engine, /*may_rest=*/true) ? bytes : 0;
}

bool SocketServer::MakesRoom(slab::EngineId engine, bool may_rest) {
  if (MustWaitForRoom(engine)) return true;
  makes_room_for_ = engine;
  turn_ends_ns_ = clock_->NowNs() + kTurnNs;
  return moves_.AnyLeaves() || make_room_(engine, may_rest);
}

bool SocketServer::MustWaitForRoom(slab::EngineId engine) const {
  return makes_room_for_ && *makes_room_for_ != engine &&
         clock_->NowNs() < turn_ends_ns_;
}

void SocketServer::HasRoom(slab::EngineId engine) {
  if (makes_room_for_ == engine) makes_room_for_.reset();
}

}  // namespace fineserve::server
