#ifndef DAEMON_ABI_LIMIT_MESSAGES_H_
#define DAEMON_ABI_LIMIT_MESSAGES_H_

// An operator's limit of what one engine holds. Order of messages: messages.h.

#include <cstdint>

#include "daemon/abi/message_header.h"

namespace fineserve::abi {

// From now on the engine holds at most `slabs`; 0: no limit. The daemon leases
// it none above that, and asks back what it holds above that.
struct LimitRequest {
  static constexpr MessageType kType = MessageType::kLimitRequest;
  MessageHeader header;
  uint32_t engine_id;
  uint32_t slabs;
};
static_assert(sizeof(LimitRequest) == 24);

// The limit is in the slab table, for the next daemon as well.
struct LimitDone {
  static constexpr MessageType kType = MessageType::kLimitDone;
  MessageHeader header;
  uint32_t engine_id;
  uint32_t slabs;
  uint32_t held;   // when the limit was set
  uint32_t whole;  // of these: by leases of whole slabs, never asked back
};
static_assert(sizeof(LimitDone) == 32);

// In the reason why slabs were refused (RefusalCode::kPoolExhausted) if that is
// the engine's limit and not the pool's size.
inline constexpr char kLimitWords[] = "(fsctl limit)";

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_LIMIT_MESSAGES_H_
