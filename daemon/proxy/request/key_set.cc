#include "daemon/proxy/request/key_set.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace fineserve::proxy {
namespace {

constexpr absl::string_view kTrusted = "trusted";

bool IsEqual(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

bool HoldsKey(const std::vector<std::string>& keys,
              absl::string_view presented) {
  bool found = false;
  for (const std::string& key : keys) found |= IsEqual(key, presented);
  return found;
}

}  // namespace

Standing KeySet::Of(absl::string_view presented) const {
  const bool is_known = HoldsKey(keys_, presented),
             is_trusted = HoldsKey(trusted_, presented);
  if (is_open() || is_trusted) return Standing::kTrusted;
  return is_known ? Standing::kClient : Standing::kStranger;
}

Standing KeySet::OfBearer(absl::string_view authorization) const {
  constexpr absl::string_view kScheme = "bearer ";
  if (is_open()) return Standing::kTrusted;
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) {
    return Standing::kStranger;
  }
  return Of(absl::StripAsciiWhitespace(authorization.substr(kScheme.size())));
}

absl::StatusOr<KeySet> ReadKeys(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("cannot read keys ", path, ": ", strerror(errno)));
  }
  std::vector<std::string> keys, trusted;
  int number = 1;
  for (std::string line; std::getline(file, line); ++number) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    if (words.size() > 2 || (words.size() == 2 && words[1] != kTrusted)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": only the word ", kTrusted,
                       " may follow a key"));
    }
    (words.size() == 2 ? trusted : keys).push_back(words[0]);
  }
  if (keys.empty() && trusted.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " holds no key; write one per line, or remove keys from [proxy]"));
  }
  return KeySet(std::move(keys), std::move(trusted));
}

std::string WarnOfReaders(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0 || (st.st_mode & 0077) == 0) return "";
  return absl::StrFormat(
      "other users may read the keys in %s (mode %04o): chmod 600 %s", path,
      st.st_mode & 07777u, path);
}

}  // namespace fineserve::proxy
