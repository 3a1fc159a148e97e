#include "tools/lab/engines/tinyserve/model/tokens.h"

#include <algorithm>
#include <cstddef>

namespace tinyserve {
namespace {

constexpr std::string_view kConsonants = "bdfghjklmnpqrstvwxyz";
constexpr std::string_view kVowels = "aeiou";
constexpr Token kSyllables = kConsonants.size() * kVowels.size();
constexpr size_t kSyllablesInWord = 3;
static_assert(kSyllables * kSyllables * kSyllables >= kVocabulary);

constexpr std::string_view kSpace = " \t\n\v\f\r";

// Returns the id of a word of the vocabulary; kVocabulary or more for any other
// word.
Token OfVocabulary(std::string_view word) {
  if (word.size() != 2 * kSyllablesInWord) return kVocabulary;
  Token token = 0;
  for (size_t at = 0; at < word.size(); at += 2) {
    const size_t consonant = kConsonants.find(word[at]);
    const size_t vowel = kVowels.find(word[at + 1]);
    if (consonant == kConsonants.npos || vowel == kVowels.npos) {
      return kVocabulary;
    }
    token = token * kSyllables +
            static_cast<Token>(consonant * kVowels.size() + vowel);
  }
  return token;
}

// Returns the 64-bit FNV-1a hash of the word, folded to an id that is not
// kEndOfText.
Token Hashed(std::string_view word) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : word) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return 1 + static_cast<Token>((hash ^ (hash >> 32)) % (kVocabulary - 1));
}

Token Read(std::string_view word) {
  const Token token = OfVocabulary(word);
  return token == kEndOfText || token >= kVocabulary ? Hashed(word) : token;
}

}  // namespace

std::vector<Token> Tokenise(std::string_view text) {
  std::vector<Token> tokens;
  size_t at = text.find_first_not_of(kSpace);
  while (at != text.npos) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    tokens.push_back(Read(text.substr(at, end - at)));
    at = text.find_first_not_of(kSpace, end);
  }
  return tokens;
}

std::string Word(Token token) {
  token %= kVocabulary;
  if (token == kEndOfText) return "";
  std::string word(2 * kSyllablesInWord, ' ');
  for (size_t at = word.size(); at > 0; at -= 2, token /= kSyllables) {
    const Token syllable = token % kSyllables;
    word[at - 2] = kConsonants[syllable / kVowels.size()];
    word[at - 1] = kVowels[syllable % kVowels.size()];
  }
  return word;
}

std::string Text(const std::vector<Token>& tokens) {
  std::string text;
  for (const Token token : tokens) {
    const std::string word = Word(token);
    if (!text.empty() && !word.empty()) text += ' ';
    text += word;
  }
  return text;
}

std::string ChatPrompt(const std::vector<Message>& messages) {
  std::string prompt;
  for (const Message& message : messages) {
    prompt += "<|" + message.role + "|> " + message.content + " ";
  }
  return prompt + "<|assistant|>";
}

}  // namespace tinyserve
