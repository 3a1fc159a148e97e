#ifndef DAEMON_ABI_ROOM_MESSAGES_H_
#define DAEMON_ABI_ROOM_MESSAGES_H_

// Messages by which an engine gets device memory that the pool has, for
// weights, activations and anything else but KV. Order of messages: messages.h.

#include <cstdint>

#include "daemon/abi/message_header.h"

namespace fineserve::abi {

// The driver has refused this process `bytes`, and it will try again; 0: it has
// stopped waiting. Not to be sent unless the slab table says that room is given
// (TableHeader::gives_room), since an older daemon ends the connection.
struct RoomRequest {
  static constexpr MessageType kType = MessageType::kRoomRequest;
  MessageHeader header;
  uint64_t bytes;
};
static_assert(sizeof(RoomRequest) == 24);

// Bytes that the pool could still give up for it, some of them only once other
// engines have returned slabs, or that idle engines leave; 0: nothing, so the
// process need not wait.
struct RoomAnswer {
  static constexpr MessageType kType = MessageType::kRoomAnswer;
  MessageHeader header;
  uint64_t coming_bytes;
};
static_assert(sizeof(RoomAnswer) == 24);

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_ROOM_MESSAGES_H_
