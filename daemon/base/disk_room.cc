#include "daemon/base/disk_room.h"

#include <sys/statvfs.h>

namespace fineserve::base {

absl::optional<uint64_t> FreeBytes(const std::string& path) {
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0 || disk.f_blocks == 0) {
    return absl::nullopt;
  }
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

}  // namespace fineserve::base
