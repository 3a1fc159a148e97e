#include "tools/fsctl/profile/new_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/whole_file.h"

namespace fineserve::fsctl {
namespace {

absl::Status WithCure(const absl::Status& s) {
  return absl::UnavailableError(
      absl::StrCat(s.message(), "; choose another --output"));
}

}  // namespace

absl::Status CheckWritable(const std::string& path) {
  struct stat found;
  const bool exists = stat(path.c_str(), &found) == 0;
  if (exists && !S_ISREG(found.st_mode)) {
    return absl::UnavailableError(
        absl::StrCat(path, " is not a regular file; choose another --output"));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const char* where = folder.empty() ? "." : folder.c_str();
  return access(where, W_OK | X_OK) == 0
             ? absl::OkStatus()
             : WithCure(base::Cannot("write", path));
}

absl::Status WriteProfile(const std::string& path, const std::string& text) {
  const absl::Status s =
      base::ReplaceFile(path, text, {.mode = 0644, .synced = true});
  return s.ok() ? s : WithCure(s);
}

}  // namespace fineserve::fsctl
