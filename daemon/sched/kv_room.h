#ifndef DAEMON_SCHED_KV_ROOM_H_
#define DAEMON_SCHED_KV_ROOM_H_

#include <cstdint>

#include "daemon/abi/kv_shape.h"
#include "daemon/sched/kv_booking.h"

namespace fineserve::sched {

// The KV that an engine has, in tokens of its own format.
struct KvRoom {
  uint64_t tokens = 0;  // that can be filled now: its leases and certain grants
  uint64_t most_tokens = 0;  // that it can ever have
  // Kept free for each sequence, whose last block is partly used.
  uint64_t tail_tokens = 0;
  // How many blocks a sequence takes, where that is known. Then each of them
  // counts as `block_tokens`, and there is no tail.
  abi::KvShape shape = {};
  uint32_t block_tokens = 0;
  // The engine gets no new requests, whatever KV it has; `tokens` is 0.
  bool closed = false;
};

// Whether a sequence's prompt is still to be filled. More of its tokens may be
// in flight then, so it keeps more.
enum class Phase : uint8_t { kFilling, kAnswering };

// What of the room a sequence of so many tokens takes.
uint64_t RoomFor(const KvRoom& room, uint64_t tokens, Phase phase);

// What it claims if so many tokens more are expected of it: at its end exactly
// what it takes then, and before that no less than it takes, but for a part of
// a block, since its windows count as they are at the end.
KvClaim ClaimOf(const KvRoom& room, uint64_t tokens, uint32_t growth,
                Phase phase);

// As many of `growth` tokens as a sequence of so many may still add until it
// takes all that the engine can ever have.
uint32_t GrowthThatFits(const KvRoom& room, uint64_t tokens, uint32_t growth,
                        Phase phase);

// What `count` prompts of so many tokens in all take if they are equally long,
// which takes the most, but for a part of a block each.
uint64_t RoomForPrompts(const KvRoom& room, uint64_t count, uint64_t tokens);

}  // namespace fineserve::sched

#endif  // DAEMON_SCHED_KV_ROOM_H_
