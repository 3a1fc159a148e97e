#ifndef TOOLS_LAB_ENGINES_TINYSERVE_MODEL_TOKENS_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_MODEL_TOKENS_H_

// The tokeniser: a token is a word. Words of the vocabulary have three
// syllables ("bodiga"), so that generated text is read back as the ids from
// which it was made. Every other word is hashed to an id. Pure functions, any
// thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tinyserve {

using Token = uint32_t;

// As many as Llama 3 has.
inline constexpr Token kVocabulary = 128'256;
// Ends an answer. It has no text, and no word is read as it.
inline constexpr Token kEndOfText = 0;

// Splits the text at ASCII white space.
std::vector<Token> Tokenise(std::string_view text);

// Returns "" for kEndOfText. Takes an id beyond the vocabulary modulo its size.
std::string Word(Token token);

// Returns the words with one space between them.
std::string Text(const std::vector<Token>& tokens);

// The prompt that the model gets for a conversation: "<|role|> content" of each
// message, then "<|assistant|>".
struct Message {
  std::string role;
  std::string content;
};
std::string ChatPrompt(const std::vector<Message>& messages);

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_MODEL_TOKENS_H_
