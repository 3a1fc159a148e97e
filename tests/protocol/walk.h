#ifndef TESTS_PROTOCOL_WALK_H_
#define TESTS_PROTOCOL_WALK_H_

#include <cstdint>
#include <random>
#include <string>

namespace fineserve::protocol {

// The number of walks after which a search for something gives up.
constexpr uint32_t kMostWalks = 20'000;

// Lets random events happen in a world, and then lets it settle. Returns what
// went wrong, or "".
template <typename World>
std::string WalkThrough(uint32_t seed, uint32_t events, World* world) {
  std::mt19937 random(seed);
  for (uint32_t n = 0; n < events && world->violation().empty(); ++n) {
    world->Happen(static_cast<uint32_t>(random()));
  }
  const std::string wrong =
      world->violation().empty() ? world->Settle() : world->violation();
  return wrong.empty() ? "" : "seed " + std::to_string(seed) + ": " + wrong;
}

// Walks through worlds with these options: at least `least` times, and then
// until `is_enough`, which gets the world after each walk, has returned true.
// Returns what went wrong first, or "".
template <typename World, typename Options, typename IsEnough>
std::string Walk(const Options& options, uint32_t events, uint32_t least,
                 IsEnough is_enough) {
  const uint32_t first = std::random_device{}();
  bool enough = false;
  for (uint32_t i = 0; i < least || (i < kMostWalks && !enough); ++i) {
    World world(options);
    const std::string wrong = WalkThrough(first + i, events, &world);
    if (!wrong.empty()) return wrong;
    enough = is_enough(world);
  }
  return enough ? "" : "what these walks look for does not happen";
}

// Returns the fault of the first walk that has one, or "".
template <typename World, typename Options>
std::string FirstFault(const Options& options, uint32_t events) {
  const uint32_t first = std::random_device{}();
  std::string found;
  for (uint32_t i = 0; i < kMostWalks && found.empty(); ++i) {
    World world(options);
    found = WalkThrough(first + i, events, &world);
  }
  return found;
}

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_WALK_H_
