#ifndef DAEMON_CONTRACT_ABI_LEASE_MESSAGES_H_
#define DAEMON_CONTRACT_ABI_LEASE_MESSAGES_H_

// Messages by which an engine leases whole slabs, fetches their granules and
// returns them. Order of messages: messages.h.

#include <cstdint>

#include "daemon/contract/abi/message_header.h"

namespace fineserve::abi {

// A process numbers its requests from 1 to this number, and then starts again
// at 1.
inline constexpr uint32_t kMostLeaseRequest = 1023;

// Asks for whole slabs, zeroed. The answer waits for slabs that other engines
// were asked to return, and for the zero fill. A process that lost its
// connection before the answer came repeats the request with its number; if a
// lease was granted before, it gets the same one.
struct LeaseRequest {
  static constexpr MessageType kType = MessageType::kLeaseRequest;
  MessageHeader header;
  uint32_t slab_count;  // ≥ 1
  uint32_t request;     // ≤ kMostLeaseRequest; 0: without a number
};
static_assert(sizeof(LeaseRequest) == 24);

struct LeaseGrant {
  static constexpr MessageType kType = MessageType::kLeaseGrant;
  MessageHeader header;
  uint32_t lease;  // never 0, never reused within an epoch
  uint32_t slab_count;
};
static_assert(sizeof(LeaseGrant) == 24);

// Asks for descriptors of a lease's granules [first, first + max_count), in the
// order in which the client maps them: slab by slab.
struct GranuleRequest {
  static constexpr MessageType kType = MessageType::kGranuleRequest;
  MessageHeader header;
  uint32_t lease;
  uint32_t first;
  uint32_t max_count;  // 1 … kMaxDescriptorsPerMessage
  uint32_t reserved;
};
static_assert(sizeof(GranuleRequest) == 32);

// Carries `count` descriptors: at least 1, and fewer than requested if the
// daemon could not send all. A client that gets MSG_CTRUNC closes the received
// descriptors and asks again for fewer.
struct GranuleBatch {
  static constexpr MessageType kType = MessageType::kGranuleBatch;
  MessageHeader header;
  uint32_t lease;
  uint32_t first;
  uint32_t count;
  uint32_t reserved;
};
static_assert(sizeof(GranuleBatch) == 32);

// Returns a lease. The client has unmapped it in a synchronised context, so
// none of the client's work can touch the slabs. With lease 0, returns the
// lease that was granted for the request of this number and whose answer never
// arrived.
struct ReturnRequest {
  static constexpr MessageType kType = MessageType::kReturnRequest;
  MessageHeader header;
  uint32_t lease;
  uint32_t request;  // LeaseRequest::request if lease is 0
};
static_assert(sizeof(ReturnRequest) == 24);

struct ReturnDone {
  static constexpr MessageType kType = MessageType::kReturnDone;
  MessageHeader header;
  uint32_t lease;
  uint32_t reserved;
};
static_assert(sizeof(ReturnDone) == 24);

// Messages by which an engine gets device memory from the pool for weights,
// activations and anything else but KV. Order of messages: messages.h.

// The driver has refused this process `bytes`, and it will try again; 0: it has
// stopped waiting. Sent only if the slab table says that room is given
// (TableHeader::gives_room), since an older daemon closes the connection on it.
struct RoomRequest {
  static constexpr MessageType kType = MessageType::kRoomRequest;
  MessageHeader header;
  uint64_t bytes;
};
static_assert(sizeof(RoomRequest) == 24);

// Bytes that the pool could still give up for the process, or that idle engines
// would free by leaving; some become available only once other engines have
// returned slabs. 0: none, so the process need not wait.
struct RoomAnswer {
  static constexpr MessageType kType = MessageType::kRoomAnswer;
  MessageHeader header;
  uint64_t coming_bytes;
};
static_assert(sizeof(RoomAnswer) == 24);

// Messages by which an operator limits the slabs of one engine. Order of
// messages: messages.h.

// From now on the engine holds at most `slabs`; 0: no limit. The daemon leases
// it no slab beyond the limit, and asks it to return those beyond the limit.
struct LimitRequest {
  static constexpr MessageType kType = MessageType::kLimitRequest;
  MessageHeader header;
  uint32_t engine_id;
  uint32_t slabs;
};
static_assert(sizeof(LimitRequest) == 24);

// The limit has been written to the slab table, where the next daemon finds it
// as well.
struct LimitDone {
  static constexpr MessageType kType = MessageType::kLimitDone;
  MessageHeader header;
  uint32_t engine_id;
  uint32_t slabs;
  uint32_t held;   // when the limit was set
  uint32_t whole;  // of these: by leases of whole slabs, never asked back
};
static_assert(sizeof(LimitDone) == 32);

// Part of a refusal's text (RefusalCode::kPoolExhausted) if the reason is the
// engine's limit and not the pool's size.
inline constexpr char kLimitWords[] = "(fsctl limit)";

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_LEASE_MESSAGES_H_
