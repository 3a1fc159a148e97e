#ifndef TESTS_PROTOCOL_EXPLORE_H_
#define TESTS_PROTOCOL_EXPLORE_H_

#include <cstdint>
#include <vector>

#include "tests/protocol/explorer.h"
#include "tests/protocol/world.h"

namespace fineserve::protocol {

using Exploration = ExplorationOf<World>;

// A run of random events; the seed names it.
Exploration Walk(const Options& options, uint32_t seed, uint32_t events);

// Tries every order of events from the start of a world, each state once, at
// most `most_states`. Worlds cannot be copied, so a state is reached again by
// repeating the events that led to it; one run goes on from there until it
// meets only states that are known.
Exploration Explore(const Options& options, uint64_t most_states);

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_EXPLORE_H_
