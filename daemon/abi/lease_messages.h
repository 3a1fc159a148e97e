#ifndef DAEMON_ABI_LEASE_MESSAGES_H_
#define DAEMON_ABI_LEASE_MESSAGES_H_

// Messages by which an engine leases whole slabs, fetches their granules and
// returns them. Order of messages: messages.h.

#include <cstdint>

#include "daemon/abi/message_header.h"

namespace fineserve::abi {

// A process numbers its requests from 1 to this, and begins again.
inline constexpr uint32_t kMostLeaseRequest = 1023;

// Asks for whole slabs, zeroed. The answer waits until their zero fill has
// completed, and for slabs that other engines were asked to return. A process
// that lost its connection before the answer came repeats the request with its
// number, and is granted the lease that it was granted before, if it was.
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

// Asks for descriptors of a lease's granules [first, first + max_count), in
// the order in which they are to be mapped: slab by slab.
struct GranuleRequest {
  static constexpr MessageType kType = MessageType::kGranuleRequest;
  MessageHeader header;
  uint32_t lease;
  uint32_t first;
  uint32_t max_count;  // 1 … kMaxDescriptorsPerMessage
  uint32_t reserved;
};
static_assert(sizeof(GranuleRequest) == 32);

// Carries `count` descriptors: at least 1, and fewer than asked for if the
// daemon could not send all. A client that got MSG_CTRUNC closes what came and
// asks again for fewer.
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
// none of its work can touch the slabs. With lease 0: the one that was granted
// for the request of this number, whose answer never came.
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

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_LEASE_MESSAGES_H_
