#ifndef TOOLS_LAB_ENGINES_RANKS_PROMPT_POOL_H_
#define TOOLS_LAB_ENGINES_RANKS_PROMPT_POOL_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tools/lab/engines/ranks/http_front.h"
#include "tools/lab/engines/ranks/ranks.h"

namespace stock_engine {

// The slabs of a group engine that serves completions concurrently, as many as
// fit into its slabs. In the order of arrival, each completion takes as many
// slabs as its body says once they are free, fills them on every rank, and
// keeps them until Finish. An engine accepts everything that it is sent, so a
// completion that admission should have held back waits here. Slabs without a
// completion are kept until they are asked back. Not thread-safe.
class PromptPool {
 public:
  PromptPool(Ranks* ranks, const fs_kv_geometry& geometry,
             const HttpFront* front);

  // Reads the requests that have arrived, and starts those that have their
  // slabs.
  void Step();
  // Checks the slabs of all running completions, and answers them.
  void Finish();
  // Returns "running=… waiting=… held=… asked=…"; the first two count
  // completions.
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
