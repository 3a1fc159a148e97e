#ifndef TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_SEQUENCE_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_SEQUENCE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "tools/lab/engines/tinyserve/kv/block_source.h"
#include "tools/lab/engines/tinyserve/model/answer.h"
#include "tools/lab/engines/tinyserve/model/tokens.h"

namespace tinyserve {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

enum class Finish { kNot, kLength, kStop };

// Called on the engine's thread for each token.
using Listener = std::function<void(Token, Finish)>;

// A request as the engine runs it. Confined to the engine's thread.
//
// Invariants: states[p + 1] is the state after position p, states[0] the one
// before the first; computed is at most tokens.size(), and the blocks hold as
// many positions at least: that of position p is blocks[p / block_tokens].
struct Sequence {
  uint64_t id = 0;
  Wanted wanted;
  Listener listener;
  Time arrived = {};

  std::vector<Token> tokens;  // the prompt, then what was chosen
  uint32_t prompt_tokens = 0;
  std::vector<State> states;
  uint32_t computed = 0;  // positions whose KV is written
  std::vector<BlockId> blocks;
  uint32_t next_check = 0;  // the block that is read next, in turn
  uint32_t preemptions = 0;
  Time started = {};        // first scheduled
  Time last_token_at = {};  // or {}

  uint32_t chosen() const {
    return static_cast<uint32_t>(tokens.size()) - prompt_tokens;
  }
  uint32_t left_to_compute() const {
    return static_cast<uint32_t>(tokens.size()) - computed;
  }
  void Append(Token token) {
    tokens.push_back(token);
    states.push_back(NextState(states.back(), token));
  }
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_SEQUENCE_H_
