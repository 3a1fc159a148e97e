// The part of SocketServer that carries out operators' requests.

#include <string>

#include "daemon/fineserved/server/peer_connection.h"
#include "daemon/fineserved/server/socket_server.h"

namespace fineserve::server {

bool SocketServer::HandleLimit(PeerConnection* c, const abi::LimitRequest& r) {
  const slab::EngineId engine{r.engine_id};
  const absl::Status s = pool_->machine()->SetLimit(engine, r.slabs);
  if (!s.ok()) {
    return Refuse(c, r.header.sequence, abi::RefusalCode::kLimit,
                  std::string(s.message()));
  }
  const slab::SlabManager::Holding held = pool_->slabs().HeldBy(engine);
  auto done = abi::MakeMessage<abi::LimitDone>(r.header.sequence);
  done.engine_id = r.engine_id;
  done.slabs = r.slabs;
  done.held = held.slabs;
  done.whole = held.slabs - held.in_view;
  return abi::Send(c->socket.get(), done) == 0;
}

}  // namespace fineserve::server
