#include "shim/classify/symbol_pattern.h"

namespace fineserve::shim {
namespace {

bool IsEnd(char c) { return c == '\0' || c == '|'; }

// Compares with one alternative. After a mismatch only the last '*' is
// extended; extending an earlier one would gain nothing.
bool MatchesOne(const char* pattern, const char* text) {
  const char* star = nullptr;
  const char* resume = nullptr;
  while (*text != '\0') {
    if (*pattern == '*') {
      star = ++pattern;
      resume = text;
    } else if (!IsEnd(*pattern) && *pattern == *text) {
      ++pattern;
      ++text;
    } else if (star != nullptr) {
      pattern = star;
      text = ++resume;
    } else {
      return false;
    }
  }
  while (*pattern == '*') ++pattern;
  return IsEnd(*pattern);
}

}  // namespace

bool Matches(const char* pattern, const char* text) {
  for (;;) {
    if (MatchesOne(pattern, text)) return true;
    while (!IsEnd(*pattern)) ++pattern;
    if (*pattern == '\0') return false;
    ++pattern;
  }
}

}  // namespace fineserve::shim
