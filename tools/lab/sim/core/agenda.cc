#include "tools/lab/sim/core/agenda.h"

namespace fineserve::sim {
namespace {

// Returns at least two, so that the tree has a root.
uint32_t PowerOfTwo(uint32_t least) {
  uint32_t power = 2;
  while (power < least) power *= 2;
  return power;
}

}  // namespace

Agenda::Agenda(uint32_t actors)
    : leaves_(PowerOfTwo(actors)), times_(leaves_, kNever), winners_(leaves_) {
  for (uint32_t node = leaves_ - 1; node >= 1; --node) {
    const bool above_leaves = 2 * node >= leaves_;
    winners_[node] = above_leaves ? 2 * node - leaves_ : winners_[2 * node];
  }
}

void Agenda::Set(uint32_t actor, Micros at) {
  if (times_[actor] == at) return;
  times_[actor] = at;
  uint32_t node = (leaves_ + actor) / 2;
  uint32_t winner = Winner(actor & ~1u, actor | 1u);
  for (;;) {
    // If the node still has a different winner, nothing changes above it.
    if (winners_[node] == winner && winner != actor) return;
    winners_[node] = winner;
    if (node == 1) return;
    node /= 2;
    winner = Winner(winners_[2 * node], winners_[2 * node + 1]);
  }
}

}  // namespace fineserve::sim
