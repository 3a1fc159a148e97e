#ifndef DAEMON_BASE_WHOLE_FILE_H_
#define DAEMON_BASE_WHOLE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace fineserve::base {

struct Replacing {
  // Mode of the new file, whatever the umask is.
  mode_t mode = 0600;
  // If true, the text is on the disk when the call returns, so that it survives
  // a crash of the machine. Not for event loops, since it waits for the disk.
  bool synced = false;
  // If true, a file written by root belongs to the owner of the former file, or
  // of the folder, so that a service can read what root writes for it.
  bool keeps_owner = false;
};

// Replaces the file's content. At any time, even after a failure, a reader
// finds the whole old text or the whole new one. Unavailable, in one line with
// the reason, if the file cannot be written; then no other file is left behind.
// Several processes may replace one file at once.
absl::Status ReplaceFile(const std::string& path, absl::string_view text,
                         const Replacing& how = {});

// Returns the file's text. NotFound if there is no such file, Unavailable if it
// cannot be read.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

// A disk with less free space counts as full: a log line or a state file may
// fail to fit at any time.
inline constexpr uint64_t kFullBelowBytes = 8 << 20;

// Returns the bytes that a user may still write to the file system of `path`;
// nullopt if the path does not exist, or is on no disk, such as /proc.
absl::optional<uint64_t> FreeBytes(const std::string& path);

}  // namespace fineserve::base

#endif  // DAEMON_BASE_WHOLE_FILE_H_
