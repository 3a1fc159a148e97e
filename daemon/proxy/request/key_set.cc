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

namespace fineserve::proxy {
namespace {

bool IsEqual(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace

bool KeySet::Admits(absl::string_view presented) const {
  bool found = is_open();
  for (const std::string& key : keys_) found |= IsEqual(key, presented);
  return found;
}

bool KeySet::AdmitsBearer(absl::string_view authorization) const {
  if (is_open()) return true;
  constexpr absl::string_view kScheme = "bearer ";
  return absl::StartsWithIgnoreCase(authorization, kScheme) &&
         Admits(
             absl::StripAsciiWhitespace(authorization.substr(kScheme.size())));
}

absl::StatusOr<KeySet> ReadKeys(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("cannot read keys ", path, ": ", strerror(errno)));
  }
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const absl::string_view key = absl::StripAsciiWhitespace(line);
    if (!key.empty() && key[0] != '#') keys.emplace_back(key);
  }
  if (keys.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " holds no key; write one per line, or remove keys from [proxy]"));
  }
  return KeySet(std::move(keys));
}

std::string WarnOfReaders(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0 || (st.st_mode & 0077) == 0) return "";
  return absl::StrFormat(
      "other users may read the keys in %s (mode %04o): chmod 600 %s", path,
      st.st_mode & 07777u, path);
}

}  // namespace fineserve::proxy
