#include "daemon/proxy/page/engine_log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/door/door.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::proxy {
namespace {

// The path of the engine's log.
absl::StatusOr<std::string> LogPath(const LogPlace& place,
                                    const std::string& engine,
                                    absl::Duration patience) {
  absl::Status why = absl::NotFoundError(
      "no fsctl up of this fleet runs here; an engine that something else "
      "started writes where that sends it (a unit's: journalctl -u UNIT)");
  for (const std::string& door : apply::ListDoors(place.folder)) {
    if (!apply::IsDoorOf(door, "up")) continue;
    const auto up = apply::AskDoor(door, apply::Question(), patience);
    if (absl::IsNotFound(up.status())) continue;  // it has ended
    if (!up.ok()) {
      why = up.status();
      continue;
    }
    if (!place.fleet_path.empty() &&
        !config::IsSameFleet(up->fleet_path, place.fleet_path)) {
      continue;
    }
    for (const apply::EngineState& state : up->engines) {
      if (state.name == engine && !state.log_path.empty()) {
        return state.log_path;
      }
    }
    why = absl::NotFoundError(
        absl::StrCat("fsctl up ", up->pid, " does not run ", engine,
                     " here, or is of a release that does not say where its "
                     "logs are"));
  }
  return why;
}

// Drops the first line, which may have been cut.
void DropFirstLine(std::string* text) {
  const size_t end = text->find('\n');
  if (end != text->npos) text->erase(0, end + 1);
}

absl::StatusOr<std::string> TailOf(const std::string& path) {
  // O_NONBLOCK: with a FIFO of that name, open would wait for a writer.
  const driver::Descriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat now = {};
  if (!file.valid() || fstat(file.get(), &now) != 0)
    return base::Cannot("read", path);
  if (!S_ISREG(now.st_mode)) {
    return absl::UnavailableError(absl::StrCat(path, " is no regular file"));
  }
  const auto most = static_cast<off_t>(kMostLogBytes);
  const off_t from = std::max<off_t>(0, now.st_size - most);
  std::string text(static_cast<size_t>(now.st_size - from), '\0');
  const ssize_t n = pread(file.get(), text.data(), text.size(), from);
  if (n < 0) return base::Cannot("read", path);
  text.resize(static_cast<size_t>(n));
  if (from > 0) DropFirstLine(&text);
  return text;
}

ApiError ErrorOf(const absl::Status& s) {
  if (absl::IsNotFound(s)) return ClientError(404, "no_log", s.message());
  return ServerError(503, "log_unavailable", s.message());
}

}  // namespace

LocalAnswer EngineLog(const LogPlace& place, const std::string& engine,
                      absl::Duration patience) {
  const absl::StatusOr<std::string> path = LogPath(place, engine, patience);
  if (!path.ok()) return ErrorAnswer(ErrorOf(path.status()));
  absl::StatusOr<std::string> text = TailOf(*path);
  if (!text.ok()) return ErrorAnswer(ErrorOf(text.status()));
  LocalAnswer answer;
  answer.content_type = kLogType;
  answer.body = *std::move(text);
  answer.fields =
      "cache-control: no-store\r\nx-content-type-options: nosniff\r\n";
  return answer;
}

}  // namespace fineserve::proxy
