#ifndef BENCH_LOADGEN_PROMPT_H_
#define BENCH_LOADGEN_PROMPT_H_

#include <cstdint>
#include <string>

#include "bench/workload/trace.h"

namespace fineserve::loadgen {

// Makes `tokens` short words, with one space between them. Another `seed` gives
// other words, so that no prefix cache helps. For tinyserve a word is a token;
// other tokenizers need slightly more tokens.
std::string Prompt(uint32_t tokens, uint64_t seed);

// Makes the body of a streaming completion (or, if `chat`, of a chat with one
// message) that generates exactly lengths.output tokens if the engine obeys
// ignore_eos.
std::string Body(const std::string& model, const workload::Lengths& lengths,
                 uint64_t seed, bool chat);

}  // namespace fineserve::loadgen

#endif  // BENCH_LOADGEN_PROMPT_H_
