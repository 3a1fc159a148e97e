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
  // True: on the disk when the call returns, so that it survives a crash of the
  // machine. Costs a wait for the disk, which no event loop should have.
  bool synced = false;
  // True: written by root it belongs to the owner of the former file, or of the
  // folder: a service must be able to read what root writes for it.
  bool keeps_owner = false;
};

// Replaces the file's content: at any time, after a failure too, a reader finds
// the old text or the new one, whole. Unavailable, in one line with the reason,
// if it cannot be written; then no other file is left behind. Several processes
// may replace one file at once.
absl::Status ReplaceFile(const std::string& path, absl::string_view text,
                         const Replacing& how = {});

// Returns the file's text. NotFound if there is no such file, Unavailable if it
// cannot be read.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

// A disk with less is full: a log line or a state file may not fit any time.
inline constexpr uint64_t kFullBelowBytes = 8 << 20;

// Bytes that a user may still write to the file system of `path`. Nullopt: it
// is not there, or on no disk, such as /proc.
absl::optional<uint64_t> FreeBytes(const std::string& path);

}  // namespace fineserve::base

#endif  // DAEMON_BASE_WHOLE_FILE_H_
