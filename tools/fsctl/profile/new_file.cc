#include "tools/fsctl/profile/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {
namespace {

absl::Status Trouble(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ",
                                             strerror(error),
                                             "; choose another --output"));
}

// 0, or why not.
int WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    done += static_cast<size_t>(n);
  }
  return fsync(fd) == 0 ? 0 : errno;
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
  return access(where, W_OK | X_OK) == 0 ? absl::OkStatus()
                                         : Trouble(path, errno);
}

absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string draft = absl::StrCat(path, ".", getpid(), ".draft");
  driver::Descriptor fd(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Trouble(path, errno);
  int error = WriteAll(fd.get(), text);
  if (error == 0 && rename(draft.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(draft.c_str());
  return Trouble(path, error);
}

}  // namespace fineserve::fsctl
