#ifndef DAEMON_BASE_DISK_ROOM_H_
#define DAEMON_BASE_DISK_ROOM_H_

#include <cstdint>
#include <string>

#include "absl/types/optional.h"

namespace fineserve::base {

// A disk with less is full: a log line or a state file may not fit any time.
inline constexpr uint64_t kFullBelowBytes = 8 << 20;

// Bytes that a user may still write to the file system of `path`. Nullopt: it
// is not there, or on no disk, such as /proc.
absl::optional<uint64_t> FreeBytes(const std::string& path);

}  // namespace fineserve::base

#endif  // DAEMON_BASE_DISK_ROOM_H_
