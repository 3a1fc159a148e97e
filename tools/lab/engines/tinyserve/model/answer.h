#ifndef TOOLS_LAB_ENGINES_TINYSERVE_MODEL_ANSWER_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_MODEL_ANSWER_H_

// The model: what a sequence's KV holds, and which token follows from it.
//
// A sequence has a state after each position, a chain over its tokens as
// attention makes the KV of a position depend on all before it:
//
//   h(-1) = hash(model, seed)        h(p) = mix(h(p-1), token p)
//
// The KV of position p is a slot: the bytes of one token in all planes, as
// words of 8 bytes w[0] … w[n-1], plane after plane. All but the last are a
// pattern of h(p) and their index; the last is chosen such that
//
//   Σ (2i + 1)·w[i] = h(p)   (mod 2^64),
//
// the slot's digest. The weights are odd, so one wrong word always changes it,
// and they differ, so words or planes that changed places do too.
//
// The token after position p is a function of a number that only reading
// yields: the digest of slot p, and of every other slot that was read the
// difference between its digest and what was written. Right bytes add
// nothing; a wrong one changes this token and so, by the chain, all after it.
// The answer therefore depends neither on format nor on batching, and
// ExpectedAnswer needs no device. Pure functions, any thread.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/lab/engines/tinyserve/model/tokens.h"

namespace tinyserve {

using State = uint64_t;

State FirstState(std::string_view model, int64_t seed);
State NextState(State state, Token token);

// Returns the next token. If `may_end`, one token in 512 is kEndOfText.
Token Choose(State read, bool may_end);

// Layout of the words of a slot: `planes` pieces of `plane_words` words each.
struct SlotShape {
  uint32_t planes;
  size_t plane_words;
};

// Fills one plane's piece of a slot with the words for `state`.
void FillSlot(const SlotShape& shape, State state, uint32_t plane,
              uint64_t* words);

// Returns one plane's share of a slot's digest, which is the sum over all
// planes.
State SlotDigest(const SlotShape& shape, uint32_t plane, const uint64_t* words);

struct Wanted {
  uint32_t most_tokens = 16;
  uint32_t least_tokens = 0;  // kEndOfText is not chosen before
  bool ignore_end = false;    // …nor at all
  int64_t seed = 0;
};

// Returns the answer of an engine of this model to a prompt if its KV stays
// intact. It ends with kEndOfText if the engine chose that token.
std::vector<Token> ExpectedAnswer(std::string_view model,
                                  const std::vector<Token>& prompt,
                                  const Wanted& wanted);

// True if the token after `chosen` tokens of an answer may be kEndOfText.
inline bool MayEnd(const Wanted& wanted, uint32_t chosen) {
  return !wanted.ignore_end && chosen >= wanted.least_tokens;
}

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_MODEL_ANSWER_H_
