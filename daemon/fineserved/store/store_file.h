#ifndef DAEMON_FINESERVED_STORE_STORE_FILE_H_
#define DAEMON_FINESERVED_STORE_STORE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::store {

// Part of a file, in bytes.
struct FileRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A file in memory (memfd) that copies are in. Its addresses are used once:
// freed ranges are punched out, so it takes the memory of its copies alone, in
// whatever order they go. Not thread-safe.
//
// Several daemons, and the processes whose copies are in it, have it open. The
// kernel's locks on open file descriptions say who needs which bytes (design
// note 0039): each has a description of its own, and read locks on its copies.
// Bytes are freed under a write lock alone. A lock ends when the last
// descriptor of its description is closed, whoever dies. One daemon at a time
// owns the file, by a lock on a byte behind its end.
class StoreFile {
 public:
  // Owned.
  static absl::StatusOr<StoreFile> Create();
  // Adopts another daemon's file, of which `file` is a descriptor. Nothing is
  // appended to it.
  static absl::StatusOr<StoreFile> Adopt(int file);

  // Takes ownership if no other process owns the file. True if it is owned.
  bool Own();

  // Makes the file longer by `bytes`, a multiple of a page, locks them, and
  // returns their offset. They have no memory yet (MappedRange::Populate).
  absl::StatusOr<uint64_t> Append(uint64_t bytes);
  // Locks a copy. False if it is not complete: some of it was never written, or
  // was freed.
  bool Lock(const FileRange& copy);
  // True if another daemon or a process has locked any part of the copy.
  bool IsLockedByOthers(const FileRange& copy) const;
  // Unlocks the copy, and frees it if no other process has locked any part of
  // it.
  void LetGo(const FileRange& copy);
  // Frees what no process has locked between two offsets, ignoring this
  // process's own locks.
  void FreeUnlocked(uint64_t begin, uint64_t end);
  // Returns a separate file description on which these copies are locked, for a
  // process that needs them.
  absl::StatusOr<driver::Descriptor> Claim(std::vector<FileRange> copies) const;
  // Called when a process no longer needs the copies locked by this claim.
  static void Unclaim(const driver::Descriptor& claim);
  // The file is not used after this.
  void Close();

  int descriptor() const { return file_.get(); }
  uint64_t memory_bytes() const;          // that it takes; 0: it is closed
  ino_t inode() const { return inode_; }  // 0: it is closed

 private:
  StoreFile(driver::Descriptor file, ino_t inode, bool has_locks)
      : file_(std::move(file)), inode_(inode), has_locks_(has_locks) {}
  bool HasAll(const FileRange& copy) const;

  driver::Descriptor file_;
  uint64_t end_ = 0;  // of what was appended
  ino_t inode_;
  // False for a file made by an older daemon: nothing is freed in it.
  bool has_locks_;
};

// A range of a file, mapped while this object lives.
class MappedRange {
 public:
  MappedRange(const StoreFile& file, uint64_t offset, uint64_t bytes);
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  ~MappedRange();

  char* base() const { return base_; }  // null: it cannot be mapped
  // Allocates memory for the parts that have none. False if the host has none;
  // after success, use of the range cannot fault.
  bool Populate() const;

 private:
  char* base_;
  const uint64_t bytes_;
  const int file_;
  const uint64_t offset_;
};

// Returns the bytes of host memory that new copies may take: those available,
// also to this cgroup, less a sixteenth of the machine's memory.
uint64_t SpareHostBytes();

// Returns the bytes that all engines' processes and all stores of the machine
// may take together: its memory less a sixteenth, at most this cgroup's limit.
// 0 if unknown.
uint64_t AllHostBytes();

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_STORE_FILE_H_
