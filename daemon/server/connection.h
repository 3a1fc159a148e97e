#ifndef DAEMON_SERVER_CONNECTION_H_
#define DAEMON_SERVER_CONNECTION_H_

#include <sys/socket.h>

#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <vector>

#include "daemon/abi/sealed_memfd.h"
#include "daemon/server/event_loop.h"
#include "daemon/server/socket_server.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

// One peer. `engine` is set once it is a member.
struct SocketServer::Connection {
  driver::Descriptor socket;
  std::unique_ptr<EventSource> source;
  ucred peer = {};
  bool greeted = false;
  slab::EngineId engine = slab::kNoEngine;
  abi::SealedMemfd scoreboard;   // until sealed against writers
  std::vector<abi::Rule> rules;  // as announced in its Welcome
  ShareLimits share;             // as configured then
  uint64_t waiting_ticket = 0;
  uint32_t waiting_sequence = 0;
  uint64_t waiting_since_ns = 0;
  // Granted, but no descriptor of them has left: nobody can have mapped them.
  std::set<slab::LeaseId> unfetched;
  std::list<Connection>::iterator self;
};

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_CONNECTION_H_
