#ifndef DAEMON_FINESERVED_SERVER_PEER_CONNECTION_H_
#define DAEMON_FINESERVED_SERVER_PEER_CONNECTION_H_

#include <sys/socket.h>

#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/sealed_memfd.h"
#include "daemon/fineserved/server/event_loop.h"
#include "daemon/fineserved/store/store.h"
#include "daemon/pool/pool_effects.h"
#include "daemon/pool/slab_ids.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

// A connected peer.
struct PeerConnection {
  driver::Descriptor socket;
  std::unique_ptr<EventSource> source;
  ucred peer = {};
  bool greeted = false;
  slab::EngineId engine = slab::kNoEngine;  // once it is a member
  abi::SealedMemfd scoreboard;              // until sealed against writers
  std::vector<abi::Rule> rules;             // as its Welcome announced
  slab::ShareLimits share;                  // as configured when it joined
  uint64_t waiting_ticket = 0;
  uint32_t waiting_sequence = 0;
  uint32_t waiting_lease = 0;  // whose granules it waits for
  uint32_t waiting_first = 0;
  // Set for an observer, which must not make a context before it is answered.
  absl::optional<abi::Hello> hello;
  // A request for whole slabs that waits until the pool has grown.
  absl::optional<abi::LeaseRequest> waiting_whole;
  uint64_t whole_deadline_ns = 0;
  // A view request that waits, because its floor will fit once a dead engine's
  // slabs are free.
  absl::optional<abi::ViewRequest> waiting_view;
  uint64_t view_deadline_ns = 0;
  // Leases whose descriptors have not been sent yet, so that no process can
  // have mapped them.
  std::set<slab::LeaseId> unfetched;
  // A lease request that its process has given up on a later connection.
  // Messages about it on this connection are out of date.
  uint32_t given_up = 0;
  // True for a member's connection that waits for orders. `handed` is what the
  // member hands to the store.
  bool is_mover = false;
  bool is_follower = false;  // of a process whose memory is another daemon's
  std::vector<store::Handed> handed;
  size_t filling = 0;    // allocations that were handed over to be filled
  uint32_t copying = 0;  // the order for which the store copies; 0: none
  std::set<uint32_t> carrying;  // CarryRequests without an answer
  uint32_t move_sequence = 0;   // of the message that waits for an answer
  std::list<PeerConnection>::iterator self;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_PEER_CONNECTION_H_
