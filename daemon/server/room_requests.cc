// The part of SocketServer that makes room for what is not KV.

#include "daemon/server/peer_connection.h"
#include "daemon/server/pool_sizing.h"
#include "daemon/server/socket_server.h"

namespace fineserve::server {

bool SocketServer::HandleRoom(PeerConnection* c, const abi::RoomRequest& r) {
  if (sizing_ == nullptr) {
    return Refuse(c, r.header.sequence, abi::RefusalCode::kRoom,
                  "the pool's size is fixed; start fineserved with --pool auto "
                  "for one that makes room");
  }
  auto answer = abi::MakeMessage<abi::RoomAnswer>(r.header.sequence);
  answer.coming_bytes = sizing_->Ask(c->engine, c->peer.pid, r.bytes);
  return abi::Send(c->socket.get(), answer) == 0;
}

}  // namespace fineserve::server
