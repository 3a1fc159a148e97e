#ifndef TESTS_PROTOCOL_EXPLORER_H_
#define TESTS_PROTOCOL_EXPLORER_H_

#include <stdlib.h>

#include <cstdint>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace fineserve::protocol {

// Enough for every instance of the tests to be explored completely.
inline constexpr uint64_t kEveryState = 5'000'000;

// Returns the number of states that an exploration without a finding visits,
// which takes some seconds. A complete exploration takes minutes: set
// FINESERVE_PROTOCOL_LONG=1 when the protocol has changed. A sanitizer makes
// each state a hundred times slower and finds nothing new here.
inline uint64_t MostStates() {
#if defined(FINESERVE_SANITIZED)
  return 1'000;
#else
  return getenv("FINESERVE_PROTOCOL_LONG") == nullptr ? 6'000 : kEveryState;
#endif
}

template <typename W>
struct ExplorationOf {
  uint64_t states = 0;
  uint64_t transitions = 0;
  uint64_t settled = 0;                 // runs whose end lost no slab
  bool complete = false;                // no state was left out
  std::string violation;                // of the first world that went wrong
  std::vector<typename W::Event> path;  // to it
};

// Tries every order of events from the start of a world, visiting each state
// once. If there are more states than it may visit, it visits different ones in
// each run. A world W has Options, Event, Enabled, Apply, violation, Settle and
// Digest, as World has.
template <typename W>
class Explorer {
 public:
  Explorer(const typename W::Options& options, uint64_t most_states)
      : options_(options), most_states_(most_states) {}

  ExplorationOf<W> Run() {
    pending_.push_back({});
    {
      W start(options_);
      known_.insert(start.Digest());
    }
    while (!pending_.empty() && found_.violation.empty() &&
           known_.size() < most_states_) {
      RunFrom(Next());
    }
    found_.states = known_.size();
    found_.complete = pending_.empty() && found_.violation.empty();
    return std::move(found_);
  }

 private:
  // Returns the next path to run: the newest if every state is visited, so that
  // few are pending.
  std::vector<typename W::Event> Next() {
    if (most_states_ < kEveryState) {
      std::swap(pending_[random_() % pending_.size()], pending_.back());
    }
    std::vector<typename W::Event> path = std::move(pending_.back());
    pending_.pop_back();
    return path;
  }

  void Settle(W* world, const std::vector<typename W::Event>& path) {
    ++found_.settled;
    found_.violation = world->Settle();
    if (!found_.violation.empty()) found_.path = path;
  }

  // Runs a path, which ends with an untried event unless it is empty.
  void RunFrom(std::vector<typename W::Event> path) {
    W world(options_);
    for (const typename W::Event& event : path) world.Apply(event);
    if (!path.empty() && !Arrive(world, path)) return;
    while (Branch(&world, &path)) {
    }
    if (found_.violation.empty()) Settle(&world, path);
  }

  // Continues with one event, and leaves the others for later.
  bool Branch(W* world, std::vector<typename W::Event>* path) {
    const std::vector<typename W::Event> events = world->Enabled();
    if (events.empty()) return false;
    for (size_t i = 1; i < events.size(); ++i) {
      pending_.push_back(*path);
      pending_.back().push_back(events[i]);
    }
    path->push_back(events[0]);
    world->Apply(events[0]);
    return Arrive(*world, *path);
  }

  // True if the state is new and nothing is wrong.
  bool Arrive(W& world, const std::vector<typename W::Event>& path) {
    ++found_.transitions;
    if (!world.violation().empty()) {
      found_.violation = world.violation();
      found_.path = path;
      return false;
    }
    return known_.insert(world.Digest()).second;
  }

  const typename W::Options options_;
  const uint64_t most_states_;
  std::mt19937_64 random_{std::random_device{}()};
  std::vector<std::vector<typename W::Event>> pending_;
  std::unordered_set<uint64_t> known_;
  ExplorationOf<W> found_;
};

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_EXPLORER_H_
