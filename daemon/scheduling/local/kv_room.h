#ifndef DAEMON_SCHEDULING_LOCAL_KV_ROOM_H_
#define DAEMON_SCHEDULING_LOCAL_KV_ROOM_H_

#include <cstdint>

#include "daemon/contract/abi/kv_shape.h"
#include "daemon/scheduling/local/kv_booking.h"
#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/predict/peer_reads.h"

namespace fineserve::sched {

// The KV that an engine has, in tokens of its own format.
struct KvRoom {
  uint64_t tokens = 0;  // that can be filled now: its leases and certain grants
  uint64_t most_tokens = 0;  // that it can ever have
  // Kept free for each sequence, whose last block is partly used.
  uint64_t tail_tokens = 0;
  // Blocks that a sequence takes, if known. Then each of them counts as
  // `block_tokens`, and there is no tail.
  abi::KvShape shape = {};
  uint32_t block_tokens = 0;
  // The engine gets no new requests, whatever KV it has; `tokens` is 0.
  bool closed = false;
  // Its memory has left the GPU, and is back in about so long; 0: it is there.
  Micros back_in = 0;
  // Weights that it reads from another GPU: part of its own is KV then.
  PeerReads peer = {};
};

// Tells whether a sequence's prompt is still to be filled. More of its tokens
// may be in flight then, so it keeps more.
enum class Phase : uint8_t { kFilling, kAnswering };

// Part of the room that a sequence of `tokens` tokens takes.
uint64_t RoomFor(const KvRoom& room, uint64_t tokens, Phase phase);

// Claim of a sequence that is expected to generate `growth` more tokens: exact
// at its end, and before that at least what it takes, less at most a part of a
// block, since its windows count as they are at the end.
KvClaim ClaimOf(const KvRoom& room, uint64_t tokens, uint32_t growth,
                Phase phase);

// As many of `growth` tokens as a sequence of so many may still add until it
// takes all that the engine can ever have.
uint32_t GrowthThatFits(const KvRoom& room, uint64_t tokens, uint32_t growth,
                        Phase phase);

// Room that `count` prompts of `tokens` tokens in all take if they are equally
// long, which takes the most, less at most a part of a block for each.
uint64_t RoomForPrompts(const KvRoom& room, uint64_t count, uint64_t tokens);

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_KV_ROOM_H_
