#ifndef TOOLS_LAB_ENGINES_RANKS_GROUP_POOL_H_
#define TOOLS_LAB_ENGINES_RANKS_GROUP_POOL_H_

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tools/lab/engines/ranks/ranks.h"

namespace stock_engine {

// The slabs of a group engine that serves at random; each slab is on every
// rank. A slab must be zero when it is leased, and must hold what was written
// last until it is returned. Not thread-safe.
class GroupPool {
 public:
  // If the ranks have weights, they also check those, and the engine leaves the
  // GPUs when asked.
  GroupPool(Ranks* ranks, const fs_kv_geometry& geometry, uint32_t seed,
            bool has_weights);

  // Makes one step of the engine: polls, checks, writes, drains. Now and then
  // the engine changes the number of slabs that it wants, or is idle for a
  // while.
  void Step();
  // Makes some steps. If the engine has left the GPUs, brings it back first; it
  // does not leave again before the steps are done.
  void Answer();
  // Called between requests, in place of steps: returns the engine's slabs, and
  // leaves when asked.
  void Rest();
  // Returns "steps=… checks=… gained=… asked=… returned=… held=… want=…
  // left=…".
  std::string Stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Slab {
    bool held = false;
    bool leaving = false;
    uint32_t word = 0;    // what it holds; 0: new
    uint32_t drains = 0;  // steps until its last block is free
  };

  bool OneIn(uint32_t n) { return random_() % n == 0; }
  void Poll();
  void ChooseWant();
  void GiveSome();
  void Use();
  void ReturnDrained();
  void BeIdle();
  void UseWeights();
  void LeaveIfAsked();
  bool ComeBack(bool is_needed);
  void Leave(uint32_t v, uint32_t drains);
  uint32_t CountOpen() const;

  Ranks* const ranks_;
  const uint32_t slabs_count_, cap_;
  std::mt19937 random_;
  std::vector<Slab> slabs_;  // by view index
  uint32_t next_word_;
  uint32_t want_ = 0;
  Clock::time_point next_want_ = Clock::now();
  const bool has_weights_;
  bool is_away_ = false;
  bool answers_ = false;
  uint32_t shared_word_ = 0;  // what the ranks' buffers hold; 0: nothing
  uint64_t left_ = 0;
  uint64_t steps_ = 0, checks_ = 0, gained_ = 0, asked_ = 0, returned_ = 0;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_GROUP_POOL_H_
