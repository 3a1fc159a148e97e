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
  // The tokens that are kept free for each sequence, because its last block is
  // partly used.
  uint64_t tail_tokens = 0;
  // The blocks that a sequence takes, if known; then each block counts as
  // `block_tokens`, and there is no tail.
  abi::KvShape shape = {};
  uint32_t block_tokens = 0;
  // The engine gets no new requests, whatever KV it has; `tokens` is 0.
  bool closed = false;
  // Approximate time until the engine's memory is back on the GPU; 0 if it is
  // on the GPU.
  Micros back_in = 0;
  // Weights that the engine reads from another GPU, while its own memory for
  // them is KV.
  PeerReads peer = {};
};

// Says whether a sequence's prompt is still being filled. In that phase more of
// its tokens may be in flight, so the sequence keeps more.
enum class Phase : uint8_t { kFilling, kAnswering };

// Returns the part of the room that a sequence of `tokens` tokens takes.
uint64_t RoomFor(const KvRoom& room, uint64_t tokens, Phase phase);

// Returns the claim of a sequence that is expected to generate `growth` more
// tokens. The claim is exact at the end. Before that it is at least what the
// sequence takes, less at most a part of a block, since windows count with
// their final size.
KvClaim ClaimOf(const KvRoom& room, uint64_t tokens, uint32_t growth,
                Phase phase);

// Returns the part of `growth` that a sequence of `tokens` tokens can still add
// before it takes all that the engine can ever have.
uint32_t GrowthThatFits(const KvRoom& room, uint64_t tokens, uint32_t growth,
                        Phase phase);

// Returns the room that `count` prompts with `tokens` tokens in total take if
// they are equally long. That is the most that they can take, less at most a
// part of a block for each.
uint64_t RoomForPrompts(const KvRoom& room, uint64_t count, uint64_t tokens);

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_KV_ROOM_H_
