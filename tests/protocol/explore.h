#ifndef TESTS_PROTOCOL_EXPLORE_H_
#define TESTS_PROTOCOL_EXPLORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/protocol/world.h"

namespace fineserve::protocol {

struct Exploration {
  uint64_t states = 0;
  uint64_t transitions = 0;
  uint64_t settled = 0;     // runs whose end lost no slab
  bool complete = false;    // no state was left out
  std::string violation;    // of the first world that went wrong
  std::vector<Event> path;  // to it
};

// A run of random events; the seed names it.
Exploration Walk(const Options& options, uint32_t seed, uint32_t events);

// Tries every order of events from the start of a world, each state once, at
// most `most_states`. Worlds cannot be copied, so a state is reached again by
// repeating the events that led to it; one run goes on from there until it
// meets only states that are known.
Exploration Explore(const Options& options, uint64_t most_states);

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_EXPLORE_H_
