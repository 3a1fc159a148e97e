#ifndef TOOLS_EMUCUDA_MACHINE_RANGE_LOCKS_H_
#define TOOLS_EMUCUDA_MACHINE_RANGE_LOCKS_H_

// Open-file-description (OFD) locks on byte ranges: the kernel's own reference
// counts, given back when the last descriptor of a description is closed, by
// whatever death. All functions are thread-safe system calls; a description
// never conflicts with its own locks.

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
// Converts the description's own write lock, or adds a read lock; false if
// another description holds a write lock.
bool TryReadLock(int fd, ByteRange range);
// Waits for other holders. Unbounded if one is stopped (SIGSTOP) inside its
// critical section: accepted for an emulator.
bool WriteLock(int fd, ByteRange range);
void Unlock(int fd, ByteRange range);

// Some lock of another description that overlaps `range` (not always the
// lowest one), unclipped.
std::optional<ByteRange> FindConflict(int fd, ByteRange range);

// First fit: the lowest start at or after 0 of `bytes` bytes that no other
// description has locked, within [0, limit).
std::optional<uint64_t> FindUnlocked(int fd, uint64_t limit, uint64_t bytes);

// Bytes of [0, limit) locked by any other description, each counted once.
uint64_t LockedBytes(int fd, uint64_t limit);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_MACHINE_RANGE_LOCKS_H_
