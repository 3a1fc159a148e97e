#include "tools/fsctl/explain/explain.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/explain/explain_output.h"
#include "tools/fsctl/pool/engine_processes.h"
#include "tools/fsctl/process/inspected_process.h"
#include "tools/fsctl/process/install_paths.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

namespace {

int NoScoreboard(pid_t pid, const AddressMap& map) {
  if (map.HasModule(kShimName)) {
    return Fail(
        kExitBadAnswer,
        absl::StrCat("the shim in pid ", pid,
                     " has decided nothing yet: the process has made no "
                     "large GPU allocation; try again later"));
  }
  return Fail(kExitBadAnswer,
              absl::StrCat("pid ", pid,
                           " runs without the shim; start it with: fsctl run "
                           "-- COMMAND"));
}

}  // namespace

int RunExplain(const Globals& globals, const ExplainOptions& options) {
  const absl::StatusOr<pid_t> pid = OneProcessOf(globals.gpu, options.engine);
  if (!pid.ok()) return Fail(ExitCodeOfProcess(pid.status()), pid.status());
  const absl::Status process = CheckProcess(*pid);
  if (!process.ok()) return Fail(kExitBadAnswer, process);
  const AddressMap map = ReadMap(*pid);
  const auto scoreboard = FindScoreboard(*pid);
  if (absl::IsNotFound(scoreboard.status())) return NoScoreboard(*pid, map);
  if (!scoreboard.ok()) return Fail(kExitBadAnswer, scoreboard.status());
  return Print(globals.json ? ExplainJson(*scoreboard, map, Now())
                            : ExplainText(*scoreboard, map, options.last, Now(),
                                          globals.color));
}

}  // namespace fineserve::fsctl
