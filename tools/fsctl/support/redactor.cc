#include "tools/fsctl/support/redactor.h"

#include <algorithm>
#include <deque>
#include <regex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace fineserve::fsctl {
namespace {

constexpr char kRedacted[] = "[redacted]";
// std::regex needs stack for each character, so long lines are cut.
constexpr size_t kLongestLine = 2000;
// A shorter secret is not removed, since that would take out half of the text.
constexpr size_t kShortestSecret = 4;

struct Pattern {
  std::regex what;
  const char* instead;
};

const std::vector<Pattern>& Patterns() {
  static const auto* const kPatterns = new std::vector<Pattern>{
      // --api-key sk-1, --hf-token=x, and "--api-key", "sk-1" in TOML and JSON.
      {std::regex(R"re((--(?:[a-z-]*-)?(?:key|token|secret|password)))re"
                  R"re((["',=\s]+)[^\s"',\]]+)re",
                  std::regex::icase),
       "$1$2[redacted]"},
      // HF_TOKEN=x, api_key: "x", "password": "x".
      {std::regex(R"re((\w*(?:api_?key|token|secret|password)"?\s*[=:]\s*))re"
                  R"re(("[^"]*"|'[^']*'|[^\s,}]+))re",
                  std::regex::icase),
       "$1[redacted]"},
      {std::regex(R"re((bearer\s+)[^\s"',]+)re", std::regex::icase),
       "$1[redacted]"},
      {std::regex(R"re((://)[^/@\s"]+@)re"), "$1[redacted]@"},
      {std::regex(R"re(\b(?:sk|pk|hf|ghp|glpat|nvapi)[-_][\w-]{6,})re"),
       kRedacted},
  };
  return *kPatterns;
}

bool SaysAny(const std::string& line,
             std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) {
    return absl::StrContains(line, word);
  });
}

// True if the line of a log cannot contain a client's text.
bool IsHarmless(const std::string& line) {
  const std::string lower = absl::AsciiStrToLower(line);
  const bool is_ours =
      SaysAny(line, {" fineserved ", " fineserve-proxy ",
                     "fineserve: ", "fineserved: ", "fsctl: "});
  if (is_ours) return true;
  if (SaysAny(lower,
              {"prompt", "message", "content", "request", "input", "text",
               "body", "output", "token_ids", "query", "document"})) {
    return false;
  }
  return SaysAny(line, {"WARN", "ERROR", "CRITICAL", "FATAL", "Traceback (",
                        "CUDA error", "out of memory"}) ||
         absl::StartsWith(line, "  File \"");
}

std::string Cut(const std::string& line, size_t most) {
  return line.size() <= most ? line : absl::StrCat(line.substr(0, most), " …");
}

}  // namespace

Redactor::Redactor(std::vector<std::string> secrets)
    : secrets_(std::move(secrets)) {
  secrets_.erase(std::remove_if(secrets_.begin(), secrets_.end(),
                                [](const std::string& secret) {
                                  return secret.size() < kShortestSecret;
                                }),
                 secrets_.end());
  // Puts longer secrets first: if a shorter secret that begins a longer one
  // were removed first, the rest of the longer one would stay.
  std::sort(secrets_.begin(), secrets_.end(),
            [](const std::string& a, const std::string& b) {
              return a.size() > b.size();
            });
}

std::string Redactor::RedactedLine(std::string line) const {
  for (const std::string& secret : secrets_) {
    line = absl::StrReplaceAll(line, {{secret, kRedacted}});
  }
  line = Cut(line, kLongestLine);
  for (const Pattern& pattern : Patterns()) {
    line = std::regex_replace(line, pattern.what, pattern.instead);
  }
  return line;
}

std::string Redactor::Redacted(const std::string& text) const {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) line = RedactedLine(std::move(line));
  return absl::StrJoin(lines, "\n");
}

std::string LogTail(const std::string& log, size_t most_lines) {
  constexpr size_t kLongest = 400;
  std::deque<std::string> kept;
  size_t all = 0;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (line.empty()) continue;
    ++all;
    const std::string text(line);
    if (!IsHarmless(text)) continue;
    kept.push_back(Cut(text, kLongest));
    if (kept.size() > most_lines) kept.pop_front();
  }
  return absl::StrCat("[", all - kept.size(), " of ", all,
                      " lines are left out: they are older, or could hold what "
                      "clients have sent]\n",
                      absl::StrJoin(kept, "\n"), kept.empty() ? "" : "\n");
}

}  // namespace fineserve::fsctl
