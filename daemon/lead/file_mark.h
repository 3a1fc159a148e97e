#ifndef DAEMON_LEAD_FILE_MARK_H_
#define DAEMON_LEAD_FILE_MARK_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace fineserve::lead {

// A file at one time: which one, and when it was written. Two files of one path
// that were there one after the other differ. All 0: there is none.
struct FileMark {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t written_ns = 0;  // by the clock of the day: only to be compared
  bool operator==(const FileMark&) const = default;

  bool IsSameFile(const FileMark& other) const {
    return inode != 0 && device == other.device && inode == other.inode;
  }
};

FileMark MarkOf(const std::string& path);
FileMark MarkOf(int descriptor);

}  // namespace fineserve::lead

#endif  // DAEMON_LEAD_FILE_MARK_H_
