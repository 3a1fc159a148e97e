#include "tools/fsctl/upgrade/program_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {

namespace fs = std::filesystem;

namespace {

absl::Status Errno(absl::string_view what, const std::string& path) {
  return absl::PermissionDeniedError(
      absl::StrCat(what, " ", path, ": ", strerror(errno),
                   "; run fsctl as a user that may, or install it there in "
                   "another way and leave --binary out"));
}

// Checks a file, or a folder above it. In a sticky folder, only the owner of a
// file can replace it.
absl::Status CheckOnlyRootWrites(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return Errno("cannot read", path);
  if (st.st_uid != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to uid ", st.st_uid));
  }
  const bool is_sticky = S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX) != 0;
  if ((st.st_mode & 0022) == 0 || is_sticky) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(path, " may be written by users other than root"));
}

absl::Status Copy(int from, const std::string& path) {
  struct stat st;
  if (fstat(from, &st) != 0) return Errno("cannot read the program for", path);
  unlink(path.c_str());
  const driver::Descriptor to(open(path.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                   st.st_mode & 0777));
  if (!to.valid()) return Errno("cannot write", path);
  off_t at = 0;
  while (at < st.st_size) {
    const ssize_t n =
        sendfile(to.get(), from, &at, static_cast<size_t>(st.st_size - at));
    if (n <= 0) return Errno("cannot write", path);
  }
  if (fchmod(to.get(), st.st_mode & 0777) != 0 || fsync(to.get()) != 0) {
    return Errno("cannot write", path);
  }
  return absl::OkStatus();
}

}  // namespace

bool IsSameFile(int descriptor, const std::string& path) {
  struct stat a, b;
  return fstat(descriptor, &a) == 0 && stat(path.c_str(), &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

absl::Status CheckOnlyRootChanges(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": ", error.message()));
  }
  // Checks both paths, since folders may also be links.
  for (fs::path at : {fs::path(path), real}) {
    for (;; at = at.parent_path()) {
      const absl::Status s = CheckOnlyRootWrites(at.string());
      if (!s.ok()) return s;
      if (at == at.parent_path()) break;
    }
  }
  return absl::OkStatus();
}

absl::Status PutInPlace(int descriptor, const std::string& path,
                        const std::string& aside) {
  const std::string fresh = absl::StrCat(path, ".fsctl-upgrade");
  absl::Status s = Copy(descriptor, fresh);
  if (s.ok() && !aside.empty()) {
    unlink(aside.c_str());
    const bool is_there = access(path.c_str(), F_OK) == 0;
    if (is_there && link(path.c_str(), aside.c_str()) != 0) {
      s = Errno("cannot keep the program as", aside);
    }
  }
  if (s.ok() && rename(fresh.c_str(), path.c_str()) != 0) {
    s = Errno("cannot replace", path);
  }
  if (!s.ok()) unlink(fresh.c_str());
  return s;
}

}  // namespace fineserve::fsctl
