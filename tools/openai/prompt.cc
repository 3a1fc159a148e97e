#include "tools/openai/prompt.h"

#include <nlohmann/json.hpp>

namespace fineserve::openai {

std::string Prompt(uint32_t words, uint64_t seed) {
  static constexpr char kConsonants[] = "bdfgklmnprstvz";
  static constexpr char kVowels[] = "aeiou";
  std::string prompt;
  prompt.reserve(size_t{words} * 5);
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint32_t i = 0; i < words; ++i) {
    if (i > 0) prompt += ' ';
    // xorshift64 is good enough for words.
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    for (const unsigned shift : {8u, 24u}) {
      prompt += kConsonants[(x >> shift) % 14];
      prompt += kVowels[(x >> (shift + 8)) % 5];
    }
  }
  return prompt;
}

std::string Body(const std::string& model, uint32_t words,
                 uint32_t output_tokens, uint64_t seed, bool chat) {
  nlohmann::ordered_json body = {{"model", model}};
  const std::string prompt = Prompt(words, seed);
  if (chat) {
    body["messages"] = {{{"role", "user"}, {"content", prompt}}};
  } else {
    body["prompt"] = prompt;
  }
  body["max_tokens"] = output_tokens;
  body["ignore_eos"] = true;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  return body.dump();
}

}  // namespace fineserve::openai
