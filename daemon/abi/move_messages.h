#ifndef DAEMON_ABI_MOVE_MESSAGES_H_
#define DAEMON_ABI_MOVE_MESSAGES_H_

// Messages by which an engine's resident memory (what is not KV: weights,
// workspaces, graph pools) leaves the GPU and comes back (design note 0039).
// Order of messages: messages.h.

#include <cstdint>

#include "daemon/abi/message_header.h"

namespace fineserve::abi {

enum class Place : uint32_t {
  kGpu = 1,
  kHost = 2,  // in a copy that daemon and engine hold; the gate is closed
};

// Says where the process's resident memory is, and waits for an order, for as
// long as it takes. On the host: with the copy's descriptor. It may be sent
// again while it waits, to say that calls need the memory.
struct MoveReport {
  static constexpr MessageType kType = MessageType::kMoveReport;
  MessageHeader header;
  Place place;
  uint32_t order;   // that this is the result of; 0: none
  uint32_t failed;  // 1: nothing was moved by it, for the reason in `why`
  uint32_t allocations;
  uint32_t is_needed;     // 1: on the host, and calls wait for it
  uint32_t lacks_room;    // 1: it failed because the GPU has no room
  uint64_t moving_bytes;  // on the GPU, and can move
  uint64_t pinned_bytes;  // on the GPU, and stay: they were exported
  uint64_t out_bytes;     // in the copy
  char why[160];          // NUL-terminated
};
static_assert(sizeof(MoveReport) == 224);

// Carries the order out, then reports. To the host: with the descriptor of an
// empty memfd, which the process makes as large as its copy.
struct MoveOrder {
  static constexpr MessageType kType = MessageType::kMoveOrder;
  MessageHeader header;
  uint32_t order;  // never 0
  Place to;
};
static_assert(sizeof(MoveOrder) == 24);

// An observer's: moves the memory of all processes of an engine, or none. The
// answer comes when they have done so.
struct MoveRequest {
  static constexpr MessageType kType = MessageType::kMoveRequest;
  MessageHeader header;
  uint32_t engine_id;
  Place to;
};
static_assert(sizeof(MoveRequest) == 24);

struct MoveDone {
  static constexpr MessageType kType = MessageType::kMoveDone;
  MessageHeader header;
  uint32_t engine_id;
  Place place;
  uint32_t processes;
  uint32_t moved;  // 0: all were there already
  uint64_t bytes;  // of resident memory that moves
  uint64_t pinned_bytes;
};
static_assert(sizeof(MoveDone) == 48);

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_MOVE_MESSAGES_H_
