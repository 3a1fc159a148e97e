#include "daemon/scheduling/local/kv_room.h"

#include <algorithm>

#include "kernels/driver/rounding.h"

namespace fineserve::sched {
namespace {

// Returns the growth of a sequence over kHorizonTokens steps: groups that keep
// all tokens grow, while a window has reached its size.
uint64_t SlopeOf(const KvRoom& room) {
  uint64_t slope = 0;
  for (const abi::KvGroups& g : room.shape.groups) {
    if (g.count == 0 || g.window_tokens > 0) continue;
    slope += DivideUp(uint64_t{kHorizonTokens} * room.block_tokens * g.count,
                      g.block_tokens);
  }
  return slope;
}

}  // namespace

uint64_t RoomFor(const KvRoom& room, uint64_t tokens, Phase phase) {
  if (!abi::IsKnown(room.shape)) return tokens + room.tail_tokens;
  const uint32_t in_flight = phase == Phase::kFilling
                                 ? room.shape.filling_tokens
                                 : room.shape.answering_tokens;
  return abi::BlocksOf(room.shape, tokens, in_flight) * room.block_tokens;
}

KvClaim ClaimOf(const KvRoom& room, uint64_t tokens, uint32_t growth,
                Phase phase) {
  if (!abi::IsKnown(room.shape)) return {tokens + room.tail_tokens, growth};
  KvClaim claim{0, growth, SlopeOf(room)};
  const uint64_t end = RoomFor(room, tokens + growth, phase);
  claim.present = end - std::min(end, claim.Added());
  return claim;
}

uint32_t GrowthThatFits(const KvRoom& room, uint64_t tokens, uint32_t growth,
                        Phase phase) {
  const auto fits = [&](uint32_t g) {
    return RoomFor(room, tokens + g, phase) <= room.most_tokens;
  };
  if (fits(growth)) return growth;
  uint32_t fitting = 0, beyond = growth;
  while (beyond - fitting > 1) {
    const uint32_t middle = fitting + (beyond - fitting) / 2;
    (fits(middle) ? fitting : beyond) = middle;
  }
  return fitting;
}

uint64_t RoomForPrompts(const KvRoom& room, uint64_t count, uint64_t tokens) {
  if (!abi::IsKnown(room.shape) || count == 0) return tokens;
  return count * RoomFor(room, DivideUp(tokens, count), Phase::kFilling);
}

}  // namespace fineserve::sched
