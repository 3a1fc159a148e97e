#ifndef TOOLS_FSCTL_APPLY_APPLY_COMMANDS_H_
#define TOOLS_FSCTL_APPLY_APPLY_COMMANDS_H_

#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct ApplyOptions {
  std::string fleet_path;
  bool yes = false;      // do not ask
  bool dry_run = false;  // say what would happen
  double drain_s = 300;  // for what engines run that must end
  double timeout_s = 600;
};
// `fsctl apply FLEET`: shows what has changed in a fleet file, asks, and makes
// fineserved, fineserve-proxy and fsctl up reload it.
int RunApply(const Globals& globals, const ApplyOptions& options);

struct RestartOptions {
  std::vector<std::string> engines;
  bool rolling = false;  // one at a time; without engines: all
  double drain_s = 300;
  double timeout_s = 600;  // for each
};
// `fsctl restart`: lets engines of fsctl up answer what they run, and starts
// them again.
int RunRestart(const Globals& globals, const RestartOptions& options);

struct StopOptions {
  std::vector<std::string> engines;
  double drain_s = 300;    // of stop
  double timeout_s = 600;  // for all
};
// `fsctl stop`: the same, but they stay down until `fsctl start`.
int RunStop(const Globals& globals, const StopOptions& options);
int RunStart(const Globals& globals, const StopOptions& options);

struct LogsOptions {
  std::string engine;
  unsigned lines = 50;  // the last ones; 0: all
  bool follow = false;
};
// `fsctl logs ENGINE`: prints the end of what an engine of fsctl up has
// written;
// --follow goes on until it is interrupted.
int RunLogs(const Globals& globals, const LogsOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_APPLY_APPLY_COMMANDS_H_
