#ifndef TOOLS_LAB_DEVICE_MACHINE_RANGE_LOCKS_H_
#define TOOLS_LAB_DEVICE_MACHINE_RANGE_LOCKS_H_

// Open-file-description (OFD) locks on byte ranges serve as reference counts
// that the kernel keeps: it drops a description's locks when the description's
// last descriptor is closed, however the process dies. All functions are
// thread-safe system calls. A description never conflicts with its own locks.

#include <cstdint>
#include <optional>

namespace fineserve::emucuda {

// Bytes [start, end) of a file.
struct ByteRange {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t bytes() const { return end - start; }
};

bool TryWriteLock(int fd, ByteRange range);
// Takes a read lock, converting the description's own write lock if there is
// one. Returns false if another description holds a write lock.
bool TryReadLock(int fd, ByteRange range);
// Takes a write lock, and waits for other holders. The wait is unbounded if a
// holder is stopped (SIGSTOP) inside its critical section, which is acceptable
// in an emulator.
bool WriteLock(int fd, ByteRange range);
void Unlock(int fd, ByteRange range);

// Returns a lock of another description that overlaps `range`. It need not be
// the lowest one, and is not clipped to `range`.
std::optional<ByteRange> FindConflict(int fd, ByteRange range);

// Searches [0, limit) first-fit: returns the lowest start of `bytes` bytes that
// no other description has locked.
std::optional<uint64_t> FindUnlocked(int fd, uint64_t limit, uint64_t bytes);

// Counts the bytes of [0, limit) that any other description has locked, each
// byte once.
uint64_t LockedBytes(int fd, uint64_t limit);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_RANGE_LOCKS_H_
