#include "daemon/admission/replace_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace fineserve::admission {

absl::Status ReplaceFile(const std::string& path, absl::string_view text) {
  const std::string next = path + ".new";
  std::ofstream file(next, std::ios::trunc);
  file << text;
  file.close();
  if (file && chmod(next.c_str(), 0600) == 0 &&
      rename(next.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", strerror(errno)));
}

}  // namespace fineserve::admission
