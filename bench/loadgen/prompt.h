#ifndef BENCH_LOADGEN_PROMPT_H_
#define BENCH_LOADGEN_PROMPT_H_

#include <cstdint>
#include <string>

#include "bench/workload/trace.h"

namespace fineserve::loadgen {

// `tokens` short words, with one space between them. Another `seed` gives other
// words, so that no prefix cache helps. For tinyserve a word is a token; other
// tokenizers need slightly more.
std::string Prompt(uint32_t tokens, uint64_t seed);

// The body of a streaming completion that generates exactly lengths.output
// tokens where the engine obeys ignore_eos; as a chat of one message if `chat`.
std::string Body(const std::string& model, const workload::Lengths& lengths,
                 uint64_t seed, bool chat);

}  // namespace fineserve::loadgen

#endif  // BENCH_LOADGEN_PROMPT_H_
