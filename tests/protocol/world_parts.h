#ifndef TESTS_PROTOCOL_WORLD_PARTS_H_
#define TESTS_PROTOCOL_WORLD_PARTS_H_

// Parts that the worlds share.

#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fineserve::protocol {

// FNV-1a over the bytes of each added value.
class Hash {
 public:
  void Add(uint64_t value) {
    for (int i = 0; i < 8; ++i) {
      hash_ = (hash_ ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

// A world that remembers what went wrong first.
class Judged {
 public:
  // "" or what went wrong.
  const std::string& violation() const { return violation_; }

 protected:
  void Fail(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }
  std::string violation_;
};

// A world in which an event is a member function of World, with the index of
// the object that the event happens to.
template <typename World>
class Choosing : public Judged {
 protected:
  using Choice = void (World::*)(size_t);

  void Allow(bool may, Choice choice, size_t which) {
    if (may) choices_.push_back({choice, which});
  }
  // Lets one of the events happen that were allowed since the last call. False
  // if none was allowed.
  bool Choose(uint32_t random) {
    if (choices_.empty()) return false;
    const auto [choice, which] = choices_[random % choices_.size()];
    choices_.clear();
    (static_cast<World*>(this)->*choice)(which);
    return true;
  }

 private:
  std::vector<std::pair<Choice, size_t>> choices_;
};

inline constexpr uint64_t kSlabBytes = 4096;
// The largest number of actions that one event makes a daemon perform.
inline constexpr uint8_t kMostDeeds = 8;

// Ends the test if a world itself is wrong.
inline void Require(bool holds) {
  if (!holds) abort();
}

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_WORLD_PARTS_H_
