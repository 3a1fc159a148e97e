#ifndef DAEMON_STORE_STORE_FILE_H_
#define DAEMON_STORE_STORE_FILE_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::store {

// A file in memory (memfd) that copies are in. Its addresses are used once:
// what is freed is punched out of it, so that it takes no more memory than its
// copies, in whatever order they go. Not thread-safe.
class StoreFile {
 public:
  static absl::StatusOr<StoreFile> Create();
  // A former daemon's. Nothing is added to it.
  static absl::StatusOr<StoreFile> Adopt(driver::Descriptor file);

  // Makes the file longer by `bytes`, a multiple of a page, and returns where.
  // It has no memory there yet (MappedRange::Populate).
  absl::StatusOr<uint64_t> Append(uint64_t bytes);
  void Free(uint64_t offset, uint64_t bytes);
  // It is not used after this.
  void Close();
  // True if all of it was written and none of it freed.
  bool HasAll(uint64_t offset, uint64_t bytes) const;

  int descriptor() const { return file_.get(); }
  uint64_t bytes() const { return end_; }
  uint64_t memory_bytes() const;          // that it takes; 0: it is closed
  ino_t inode() const { return inode_; }  // 0: it is closed

 private:
  StoreFile(driver::Descriptor file, uint64_t end, ino_t inode)
      : file_(std::move(file)), end_(end), inode_(inode) {}

  driver::Descriptor file_;
  uint64_t end_;
  ino_t inode_;
};

// A range of a file, mapped while this object lives.
class MappedRange {
 public:
  MappedRange(const StoreFile& file, uint64_t offset, uint64_t bytes);
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  ~MappedRange();

  char* base() const { return base_; }  // null: it cannot be mapped
  // Makes memory for the parts that have none. False if the host has none;
  // after that, use of it cannot fault.
  bool Populate() const;

 private:
  char* base_;
  const uint64_t bytes_;
  const int file_;
  const uint64_t offset_;
};

// The host memory that new copies may take: what is available, to this cgroup
// too, but for a sixteenth of all, in bytes.
uint64_t SpareHostBytes();

}  // namespace fineserve::store

#endif  // DAEMON_STORE_STORE_FILE_H_
