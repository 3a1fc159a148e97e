#ifndef TOOLS_LAB_ENGINES_TINYSERVE_MODEL_TOKENS_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_MODEL_TOKENS_H_

// The tokeniser: a token is a word. Words of the vocabulary are three syllables
// ("bodiga"), so that generated text is read back as the ids that it was made
// from; every other word is hashed to an id. Pure functions, any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tinyserve {

using Token = uint32_t;

// As many as Llama 3 has.
inline constexpr Token kVocabulary = 128'256;
// Ends an answer. Has no text and no word that is read as it.
inline constexpr Token kEndOfText = 0;

// Words are what white space (ASCII) separates.
std::vector<Token> Tokenise(std::string_view text);

// "" for kEndOfText; an id beyond the vocabulary is read modulo it.
std::string Word(Token token);

// Words with one space between them.
std::string Text(const std::vector<Token>& tokens);

// The prompt that a conversation is for the model: "<|role|> content" of each
// message, then "<|assistant|>".
struct Message {
  std::string role;
  std::string content;
};
std::string ChatPrompt(const std::vector<Message>& messages);

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_MODEL_TOKENS_H_
