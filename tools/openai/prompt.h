#ifndef TOOLS_OPENAI_PROMPT_H_
#define TOOLS_OPENAI_PROMPT_H_

#include <cstdint>
#include <string>

namespace fineserve::openai {

// Makes short words, with one space between them. Another `seed` gives other
// words, so that no prefix cache helps. For tinyserve a word is a token; other
// tokenizers need slightly more tokens.
std::string Prompt(uint32_t words, uint64_t seed);

// Makes the body of a streaming completion (or, if `chat`, of a chat with one
// message) of so many words that generates exactly `output_tokens` if the
// engine obeys ignore_eos.
std::string Body(const std::string& model, uint32_t words,
                 uint32_t output_tokens, uint64_t seed, bool chat);

}  // namespace fineserve::openai

#endif  // TOOLS_OPENAI_PROMPT_H_
