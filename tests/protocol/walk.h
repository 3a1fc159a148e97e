#ifndef TESTS_PROTOCOL_WALK_H_
#define TESTS_PROTOCOL_WALK_H_

#include <cstdint>
#include <random>
#include <string>

namespace fineserve::protocol {

// The number of walks after which a search for something gives up.
constexpr uint32_t kMostWalks = 20'000;

// Walks through worlds with these options, each of which is a number of random
// events and what Settle() does afterwards: at least `least` walks, and then
// until `is_enough`, which gets the world after each walk, has returned true.
// Returns what went wrong first, or "".
template <typename World, typename Options, typename IsEnough>
std::string Walk(const Options& options, uint32_t events, uint32_t least,
                 IsEnough is_enough) {
  const uint32_t first = std::random_device{}();
  bool enough = false;
  for (uint32_t i = 0; i < least || (i < kMostWalks && !enough); ++i) {
    std::mt19937 random(first + i);
    World world(options);
    for (uint32_t n = 0; n < events && world.violation().empty(); ++n) {
      world.Happen(static_cast<uint32_t>(random()));
    }
    const std::string wrong =
        world.violation().empty() ? world.Settle() : world.violation();
    if (!wrong.empty()) {
      return "seed " + std::to_string(first + i) + ": " + wrong;
    }
    enough = is_enough(world);
  }
  return enough ? "" : "what these walks look for does not happen";
}

// Returns the fault of the first walk that has one.
template <typename World, typename Options>
std::string FirstFault(const Options& options, uint32_t events) {
  return Walk<World>(options, events, kMostWalks,
                     [](const World&) { return false; });
}

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_WALK_H_
