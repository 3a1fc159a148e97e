#include "tests/protocol/explore.h"

#include <random>
#include <utility>

namespace fineserve::protocol {
namespace {

void Settle(World* world, const std::vector<Event>& path, Exploration* found) {
  ++found->settled;
  found->violation = world->Settle();
  if (!found->violation.empty()) found->path = path;
}

}  // namespace

Exploration Walk(const Options& options, uint32_t seed, uint32_t events) {
  std::mt19937 random(seed);
  Exploration found;
  World world(options);
  std::vector<Event> path;
  for (uint32_t i = 0; i < events; ++i) {
    const std::vector<Event> enabled = world.Enabled();
    if (enabled.empty()) break;
    path.push_back(enabled[random() % enabled.size()]);
    world.Apply(path.back());
    ++found.transitions;
    if (!world.violation().empty()) {
      found.violation = world.violation();
      found.path = path;
      return found;
    }
  }
  Settle(&world, path, &found);
  return found;
}

Exploration Explore(const Options& options, uint64_t most_states) {
  return Explorer<World>(options, most_states).Run();
}

}  // namespace fineserve::protocol
