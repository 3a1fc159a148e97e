#include "daemon/base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::base {
namespace {

bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool KeepOwner(int fd, const std::string& path) {
  if (geteuid() != 0) return true;
  struct stat owned = {};
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  if (lstat(path.c_str(), &owned) != 0 &&
      stat(folder.empty() ? "." : folder.c_str(), &owned) != 0) {
    return false;
  }
  return fchown(fd, owned.st_uid, owned.st_gid) == 0;
}

// Writes the draft of `path` and renames it to `path`. Returns false, with
// errno, if that fails.
bool Write(const std::string& draft, const std::string& path,
           absl::string_view text, const Replacing& how) {
  const driver::Descriptor file(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
           0600));
  return file.valid() && (!how.keeps_owner || KeepOwner(file.get(), path)) &&
         fchmod(file.get(), how.mode) == 0 && WriteAll(file.get(), text) &&
         (!how.synced || fsync(file.get()) == 0) &&
         rename(draft.c_str(), path.c_str()) == 0;
}

}  // namespace

absl::Status ReplaceFile(const std::string& path, absl::string_view text,
                         const Replacing& how) {
  // The draft's name contains the pid, since another process may write its own
  // draft at the same time. A killed process with the same pid may have left a
  // draft.
  const std::string draft = absl::StrCat(path, ".", getpid(), ".new");
  unlink(draft.c_str());
  if (Write(draft, path, text, how)) return absl::OkStatus();
  const absl::Status failed = Cannot("write", path);
  unlink(draft.c_str());
  return failed;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const driver::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat("there is no ", path));
  }
  std::string text;
  char piece[4096];
  ssize_t n = -1;
  while (file.valid() && (n = read(file.get(), piece, sizeof(piece))) > 0) {
    text.append(piece, static_cast<size_t>(n));
  }
  if (n < 0) return Cannot("read", path);
  return text;
}

absl::optional<uint64_t> FreeBytes(const std::string& path) {
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0 || disk.f_blocks == 0) {
    return absl::nullopt;
  }
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

}  // namespace fineserve::base
