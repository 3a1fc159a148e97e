// The part of SocketServer that makes room for memory other than KV: slabs
// leave the pool, and idle engines leave the GPU.

#include "daemon/fineserved/pool_service/pool_sizing.h"
#include "daemon/fineserved/server/peer_connection.h"
#include "daemon/fineserved/server/socket_server.h"

namespace fineserve::server {
namespace {

// A waiting engine asks several times a second, and a failed one tries again
// each second.
constexpr uint64_t kTurnNs = 2'000'000'000;

}  // namespace

bool SocketServer::HandleRoom(PeerConnection* c, const abi::RoomRequest& r) {
  auto answer = abi::MakeMessage<abi::RoomAnswer>(r.header.sequence);
  answer.coming_bytes = ComingFor(*c, r.bytes);
  return abi::Send(c->socket.get(), answer) == 0;
}

uint64_t SocketServer::ComingFor(const PeerConnection& c, uint64_t bytes) {
  const bool is_here = moves_.EvictedBytes(c.engine) == 0;
  // An engine that restores its parameters needs no further memory after them.
  const bool starts = is_here && moves_.DroppedOf(c.engine).bytes == 0;
  const auto ask_pool = [&] {
    return sizing_ == nullptr
               ? 0
               : sizing_->Ask(c.engine, c.peer.pid, bytes, starts);
  };
  if (bytes == 0) {  // it has stopped waiting
    EndTurn(c.engine);
    return ask_pool();
  }
  if (MustWaitForRoom(c.engine)) {  // slabs end with their requests anyway
    const uint64_t of_pool = is_here ? ask_pool() : 0;
    return of_pool != 0 ? of_pool : bytes;
  }
  const absl::optional<uint64_t> idle =
      sizing_ == nullptr ? 0 : sizing_->IdleBytes();
  if (!idle) return bytes;
  const auto evict_one = [&](bool may_rest) {
    return MakeRoomFor(c.engine, bytes, may_rest);
  };
  const auto take_slabs = [&] {
    const uint64_t of_pool = ask_pool();
    if (of_pool != 0) BeginTurn(c.engine, bytes);
    return of_pool;
  };
  return evict::MakeRoom(bytes, {*idle, evict_one, take_slabs});
}

evict::Room SocketServer::MakeRoomFor(slab::EngineId engine, uint64_t bytes,
                                      bool may_rest, uint32_t floor_slabs) {
  if (MustWaitForRoom(engine)) return evict::Room::kComes;
  // If the pool has a fixed size, the free memory is unknown.
  const evict::Lack lack = sizing_ != nullptr
                               ? evict::Lack(sizing_->LackBeyondPool(bytes))
                               : evict::Lack::OfFloor(floor_slabs);
  const evict::Room room = moves_.AnyLeaves()
                               ? evict::Room::kComes
                               : make_room_(engine, lack, may_rest);
  if (room == evict::Room::kComes) {
    BeginTurn(engine, bytes);
  } else {
    EndTurn(engine);
  }
  return room;
}

bool SocketServer::MustWaitForRoom(slab::EngineId engine) const {
  return makes_room_for_ && *makes_room_for_ != engine &&
         clock_->NowNs() < turn_ends_ns_;
}

void SocketServer::BeginTurn(slab::EngineId engine, uint64_t bytes) {
  makes_room_for_ = engine;
  turn_ends_ns_ = clock_->NowNs() + kTurnNs;
  if (sizing_ != nullptr) sizing_->Reserve(bytes, turn_ends_ns_);
  moves_.KeepOthersOut(engine);
  CarryOutMoves();
}

void SocketServer::EndTurn(slab::EngineId engine) {
  if (makes_room_for_ != engine) return;
  makes_room_for_.reset();
  if (sizing_ != nullptr) sizing_->Reserve(0, 0);
}

}  // namespace fineserve::server
