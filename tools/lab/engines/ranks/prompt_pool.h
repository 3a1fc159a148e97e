#ifndef TOOLS_LAB_ENGINES_RANKS_PROMPT_POOL_H_
#define TOOLS_LAB_ENGINES_RANKS_PROMPT_POOL_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tools/lab/engines/ranks/http_front.h"
#include "tools/lab/engines/ranks/ranks.h"

namespace stock_engine {

// The slabs of a group engine that serves completions side by side, as many as
// its slabs hold: each takes the slabs that its body names when they are there,
// in the order of arrival, fills them on every rank, and keeps them until
// Finish. An engine takes what it is sent, so a completion that admission
// should have held back waits here. Slabs without a completion are kept until
// they are asked back. Not thread-safe.
class PromptPool {
 public:
  PromptPool(Ranks* ranks, const fs_kv_geometry& geometry,
             const HttpFront* front);

  // Reads what has arrived, and starts what has its slabs.
  void Step();
  // Checks the slabs of all completions that run, and answers them.
  void Finish();
  // "running=… waiting=… held=… asked=…", the first two in completions.
  std::string Stats() const;

 private:
  struct Completion {
    int client;
    uint32_t slabs;
    uint32_t word = 0;                // that its slabs hold
    std::vector<uint32_t> held = {};  // view indices
  };
  struct Slab {
    bool held = false;
    bool leaving = false;
    bool used = false;
  };

  void TakeArrived();
  void Want();
  void Poll();
  void ReturnUnused();
  std::vector<uint32_t> FreeSlabs() const;
  void StartThoseThatFit();

  Ranks* const ranks_;
  const HttpFront* const front_;
  std::vector<Slab> slabs_;  // by view index
  std::deque<Completion> running_, waiting_;
  uint32_t want_ = 0;
  uint32_t words_ = 0;
  uint64_t asked_ = 0;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_PROMPT_POOL_H_
