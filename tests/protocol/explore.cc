#include "tests/protocol/explore.h"

#include <random>
#include <unordered_set>
#include <utility>

namespace fineserve::protocol {
namespace {

void Settle(World* world, const std::vector<Event>& path, Exploration* found) {
  ++found->settled;
  found->violation = world->Settle();
  if (!found->violation.empty()) found->path = path;
}

class Explorer {
 public:
  Explorer(const Options& options, uint64_t most_states)
      : options_(options), most_states_(most_states) {}

  Exploration Run() {
    pending_.push_back({});
    {
      World start(options_);
      known_.insert(start.Digest());
    }
    while (!pending_.empty() && found_.violation.empty() &&
           known_.size() < most_states_) {
      std::vector<Event> path = std::move(pending_.back());
      pending_.pop_back();
      RunFrom(std::move(path));
    }
    found_.states = known_.size();
    found_.complete = pending_.empty() && found_.violation.empty();
    return std::move(found_);
  }

 private:
  // A path ends with an untried event, except for the empty path.
  void RunFrom(std::vector<Event> path) {
    World world(options_);
    for (const Event& event : path) world.Apply(event);
    if (!path.empty() && !Arrive(world, path)) return;
    while (Branch(&world, &path)) {
    }
    if (found_.violation.empty()) Settle(&world, path, &found_);
  }

  // Goes on with one event, leaves the others for later.
  bool Branch(World* world, std::vector<Event>* path) {
    const std::vector<Event> events = world->Enabled();
    if (events.empty()) return false;
    for (size_t i = 1; i < events.size(); ++i) {
      pending_.push_back(*path);
      pending_.back().push_back(events[i]);
    }
    path->push_back(events[0]);
    world->Apply(events[0]);
    return Arrive(*world, *path);
  }

  // True if the state is a new one and nothing is wrong.
  bool Arrive(World& world, const std::vector<Event>& path) {
    ++found_.transitions;
    if (!world.violation().empty()) {
      found_.violation = world.violation();
      found_.path = path;
      return false;
    }
    return known_.insert(world.Digest()).second;
  }

  const Options options_;
  const uint64_t most_states_;
  std::vector<std::vector<Event>> pending_;
  std::unordered_set<uint64_t> known_;
  Exploration found_;
};

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
  return Explorer(options, most_states).Run();
}

}  // namespace fineserve::protocol
