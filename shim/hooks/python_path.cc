#include "shim/hooks/python_path.h"

#include <stdio.h>
#include <string.h>

namespace fineserve::shim {
namespace {

// Options that take a value, either the rest of their word or the next word.
constexpr char kWithValue[] = "WX";
// After these options, the remaining words belong to the program, not to the
// interpreter.
constexpr char kProgram[] = "cm";

enum class Word { kGoOn, kTakesNext, kLast, kIgnores };

Word Read(const char* word) {
  if (word[0] != '-' || word[1] == '\0') return Word::kLast;
  if (word[1] == '-') {
    return strcmp(word, "--check-hash-based-pycs") == 0 ? Word::kTakesNext
                                                        : Word::kGoOn;
  }
  for (const char* letter = word + 1; *letter != '\0'; ++letter) {
    if (*letter == 'E' || *letter == 'I') return Word::kIgnores;
    if (strchr(kProgram, *letter) != nullptr) return Word::kLast;
    if (strchr(kWithValue, *letter) != nullptr) {
      return letter[1] == '\0' ? Word::kTakesNext : Word::kGoOn;
    }
  }
  return Word::kGoOn;
}

bool Contains(const char* path, const char* folder) {
  const size_t length = strlen(folder);
  for (const char* item = path; item != nullptr;) {
    const char* end = strchrnul(item, ':');
    if (static_cast<size_t>(end - item) == length &&
        memcmp(item, folder, length) == 0) {
      return true;
    }
    item = *end == ':' ? end + 1 : nullptr;
  }
  return false;
}

}  // namespace

bool IsPython(const char* program) {
  const char* slash = strrchr(program, '/');
  return strncmp(slash == nullptr ? program : slash + 1, "python", 6) == 0;
}

bool IgnoresPythonPath(const char* const* argv) {
  if (argv[0] == nullptr) return false;
  for (++argv; *argv != nullptr; ++argv) {
    switch (Read(*argv)) {
      case Word::kIgnores:
        return true;
      case Word::kLast:
        return false;
      case Word::kTakesNext:
        if (*++argv == nullptr) return false;
        break;
      case Word::kGoOn:
        break;
    }
  }
  return false;
}

bool PrependToPath(const char* folder, const char* path, char* out,
                   unsigned long capacity) {
  // Gives up if the folder's name contains a colon, which cannot be quoted.
  if (strchr(folder, ':') != nullptr) return false;
  if (path == nullptr || path[0] == '\0') {
    return snprintf(out, capacity, "%s", folder) < static_cast<long>(capacity);
  }
  if (Contains(path, folder)) return false;
  return snprintf(out, capacity, "%s:%s", folder, path) <
         static_cast<long>(capacity);
}

}  // namespace fineserve::shim
