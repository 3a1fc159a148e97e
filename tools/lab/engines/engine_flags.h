#ifndef TOOLS_LAB_ENGINES_ENGINE_FLAGS_H_
#define TOOLS_LAB_ENGINES_ENGINE_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace stock_engine {

// The options on an engine's command line: "--name VALUE", in any order. The
// meaning of an option may have several lines and ends with the default in
// brackets.
class EngineFlags {
 public:
  // --help prints `about` first and `more` last; both consist of whole lines.
  EngineFlags(std::string program, std::string about, std::string more)
      : program_(std::move(program)),
        about_(std::move(about)),
        more_(std::move(more)) {}

  void Flag(const char* name, const char* meaning, bool* to);
  void Text(const char* name, const char* meaning, std::string* to);
  // Accepts "4096", "64KiB", "64MiB", "2GiB" (or K, M, G; all are powers of
  // 1024).
  void Bytes(const char* name, const char* meaning, size_t* to);
  // A finite number of at least 0.
  void Real(const char* name, const char* meaning, double* to);
  template <typename Number>
  void Count(const char* name, const char* meaning, Number* to,
             uint64_t least = 0,
             uint64_t most = std::numeric_limits<Number>::max()) {
    Add(name, "N", meaning, [=](const std::string& value) {
      uint64_t number;
      if (!ReadNumber(value, least, most, &number)) return false;
      *to = static_cast<Number>(number);
      return true;
    });
  }
  template <typename Value>
  void OneOf(const char* name, const char* meaning, Value* to,
             const std::vector<std::pair<std::string, Value>>& values) {
    Add(name, "NAME", meaning, [=](const std::string& word) {
      for (const auto& [known, value] : values) {
        if (word == known) *to = value;
        if (word == known) return true;
      }
      return false;
    });
  }
  // `read` returns false if the text is not a valid value.
  void Add(const char* name, const char* kind, const char* meaning,
           std::function<bool(const std::string& value)> read);

  // Exits with 2 after a line that says what is wrong; exits with 0 after
  // --help.
  void Parse(int argc, char** argv) const;
  [[noreturn]] void Refuse(const std::string& why) const;

  static bool ReadNumber(const std::string& text, uint64_t least, uint64_t most,
                         uint64_t* number);

 private:
  struct Option {
    std::string name, kind, meaning;  // without a kind: a flag
    std::function<bool(const std::string& value)> read;
  };
  void PrintHelp() const;

  const std::string program_, about_, more_;
  std::vector<Option> options_;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_ENGINE_FLAGS_H_
