#include "tools/fsctl/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/holders.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/explain_view.h"

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

namespace {

int NoScoreboard(pid_t pid, const AddressMap& map) {
  if (map.HasModule(kShimName)) {
    return Fail(kExitBadAnswer,
                absl::StrCat("pid ", pid,
                             " has the shim, which has decided nothing yet: no "
                             "large GPU allocation; ask again later"));
  }
  return Fail(kExitBadAnswer,
              absl::StrCat("pid ", pid,
                           " runs without the shim; start it with: fsctl run "
                           "-- COMMAND"));
}

}  // namespace

int RunExplain(const Globals& globals, const ExplainOptions& options) {
  const absl::Status process = CheckProcess(options.pid);
  if (!process.ok()) return Fail(kExitBadAnswer, process);
  const AddressMap map = ReadMap(options.pid);
  const auto scoreboard = FindScoreboard(options.pid);
  if (absl::IsNotFound(scoreboard.status()))
    return NoScoreboard(options.pid, map);
  if (!scoreboard.ok()) return Fail(kExitBadAnswer, scoreboard.status());
  return Print(globals.json ? ExplainJson(*scoreboard, map, Now())
                            : ExplainText(*scoreboard, map, options.last, Now(),
                                          globals.color));
}

}  // namespace fineserve::fsctl
