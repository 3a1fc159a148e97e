#include "tools/lab/device/machine/range_locks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace fineserve::emucuda {
namespace {

struct flock Describe(short type, ByteRange range) {
  struct flock lock = {};  // OFD commands require l_pid = 0
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(range.start);
  lock.l_len = static_cast<off_t>(range.bytes());
  return lock;
}

bool Apply(int fd, int command, short type, ByteRange range) {
  struct flock lock = Describe(type, range);
  int result;
  do {
    result = fcntl(fd, command, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

bool TryWriteLock(int fd, ByteRange range) {
  return Apply(fd, F_OFD_SETLK, F_WRLCK, range);
}

bool TryReadLock(int fd, ByteRange range) {
  return Apply(fd, F_OFD_SETLK, F_RDLCK, range);
}

bool WriteLock(int fd, ByteRange range) {
  return Apply(fd, F_OFD_SETLKW, F_WRLCK, range);
}

void Unlock(int fd, ByteRange range) { Apply(fd, F_OFD_SETLK, F_UNLCK, range); }

std::optional<ByteRange> FindConflict(int fd, ByteRange range) {
  struct flock lock = Describe(F_WRLCK, range);
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) {
    return std::nullopt;
  }
  const uint64_t start = static_cast<uint64_t>(lock.l_start);
  const uint64_t end = lock.l_len == 0
                           ? std::numeric_limits<uint64_t>::max()
                           : start + static_cast<uint64_t>(lock.l_len);
  return ByteRange{start, end};
}

std::optional<uint64_t> FindUnlocked(int fd, uint64_t limit, uint64_t bytes) {
  uint64_t start = 0;
  while (bytes <= limit && start <= limit - bytes) {
    const auto conflict = FindConflict(fd, {start, start + bytes});
    if (!conflict) return start;
    // No candidate is skipped, even if the conflict is not the lowest: any
    // start before the conflict's end would overlap it.
    start = conflict->end;
  }
  return std::nullopt;
}

uint64_t LockedBytes(int fd, uint64_t limit) {
  uint64_t locked = 0;
  ByteRange window = {0, limit};
  while (window.start < limit) {
    const auto conflict = FindConflict(fd, window);
    if (!conflict) {  // the window is free: continue after it
      window = {window.end, limit};
    } else if (conflict->start > window.start) {
      window.end = conflict->start;  // is there a lower one?
    } else {
      const uint64_t end = std::min(conflict->end, limit);
      locked += end - window.start;
      window = {end, limit};
    }
  }
  return locked;
}

}  // namespace fineserve::emucuda
