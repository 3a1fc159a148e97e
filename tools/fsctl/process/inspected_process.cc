#include "tools/fsctl/process/inspected_process.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/abi/holders.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {

namespace {

absl::StatusOr<abi::ScoreboardSnapshot> ReadScoreboardAt(
    const std::string& path) {
  const driver::Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return absl::NotFoundError(absl::StrCat(path, " is gone"));
  return abi::ReadScoreboard(fd.get());
}

}  // namespace

AddressMap ReadMap(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/maps"));
  std::ostringstream text;
  text << file.rdbuf();
  AddressMap map = AddressMap::Parse(text.str());
  map.NameFunctionsUnder(absl::StrCat("/proc/", pid, "/root"));
  return map;
}

absl::Status CheckProcess(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  const driver::Descriptor fd(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) return absl::OkStatus();
  if (errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat("no process has pid ", pid,
                                            "; fsctl engines lists engines"));
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "may not look into pid ", pid, "; run fsctl as its user or as root"));
}

// A process may also hold others' scoreboards: a daemon holds its engines', a
// forked child its parent's.
absl::StatusOr<abi::ScoreboardSnapshot> FindScoreboard(pid_t pid) {
  absl::Status trouble = absl::OkStatus();
  for (const abi::Holder& holder : abi::FindHolders(pid)) {
    if (holder.kind != abi::Holder::Kind::kPage) continue;
    absl::StatusOr<abi::ScoreboardSnapshot> scoreboard =
        ReadScoreboardAt(holder.path);
    if (scoreboard.ok() && scoreboard->pid == static_cast<uint32_t>(pid))
      return scoreboard;
    if (!scoreboard.ok()) trouble = scoreboard.status();
  }
  return trouble.ok() ? absl::NotFoundError("") : trouble;
}

const char* LinkWords(abi::LinkState state) {
  switch (state) {
    case abi::LinkState::kNotTried:
      return "not tried: no large allocation yet";
    case abi::LinkState::kConnected:
      return "connected";
    case abi::LinkState::kNoDaemon:
      return "no daemon: everything passes through";
    case abi::LinkState::kRefused:
      return "refused: everything passes through";
    case abi::LinkState::kLost:
      return "lost: the daemon went away";
    case abi::LinkState::kForked:
      return "forked child: everything passes through";
  }
  return "?";
}

}  // namespace fineserve::fsctl
