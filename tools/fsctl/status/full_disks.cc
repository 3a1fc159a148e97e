#include "tools/fsctl/status/full_disks.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "daemon/base/whole_file.h"

namespace fineserve::fsctl {
namespace {

namespace fs = std::filesystem;

// Adds the disk of `path`, which is shown as `name`, if it is full.
void AddIfFull(const std::string& path, const std::string& name,
               std::set<dev_t>* seen, std::vector<FullDisk>* full) {
  struct stat file;
  const absl::optional<uint64_t> free = base::FreeBytes(path);
  if (!free || stat(path.c_str(), &file) != 0) return;
  const bool is_new = seen->insert(file.st_dev).second;
  if (is_new && *free < base::kFullBelowBytes) full->push_back({name, *free});
}

// The mode of a link in /proc/PID/fd says how the file is open.
bool IsWritten(const fs::directory_entry& descriptor) {
  std::error_code trouble;
  const fs::perms mode = descriptor.symlink_status(trouble).permissions();
  return !trouble && (mode & fs::perms::owner_write) != fs::perms::none &&
         descriptor.is_regular_file(trouble);
}

}  // namespace

std::vector<FullDisk> FullDisks(const std::vector<std::string>& folders,
                                const std::vector<pid_t>& writers) {
  std::vector<FullDisk> full;
  std::set<dev_t> seen;
  for (const std::string& folder : folders) {
    AddIfFull(folder, folder, &seen, &full);
  }
  for (const pid_t pid : writers) {
    std::error_code trouble;
    const std::string held = absl::StrCat("/proc/", pid, "/fd");
    for (const auto& descriptor : fs::directory_iterator(held, trouble)) {
      if (!IsWritten(descriptor)) continue;
      const fs::path name = fs::read_symlink(descriptor.path(), trouble);
      // Skips files without a path: memfds and deleted files.
      if (trouble || !fs::exists(name, trouble)) continue;
      AddIfFull(descriptor.path(), name, &seen, &full);
    }
  }
  return full;
}

}  // namespace fineserve::fsctl
