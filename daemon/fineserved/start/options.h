#ifndef DAEMON_FINESERVED_START_OPTIONS_H_
#define DAEMON_FINESERVED_START_OPTIONS_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/variant.h"
#include "daemon/fleet/config/config.h"

namespace fineserve::server {

// Command-line options of fineserved.
struct Options {
  config::Config config;  // file and flags merged
  std::function<absl::StatusOr<config::Config>()> read_again;
  bool dry_run = false;
  // Instead of serving, runs a fineserved that serves, and keeps its pool for
  // the next one (holder::Supervise).
  bool supervise = false;
  // Only reports whether this program could continue with the pool that it
  // inherited.
  bool check_takeover = false;
};

// Parses the command line and the file it names; flags override the file. If
// the program should exit at once (help, version, a mistake), prints the reason
// and returns the exit code instead: for a mistake (exit code 2), prints one
// line on stderr with the fix.
absl::variant<Options, int> ParseOptions(int argc, char** argv);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_START_OPTIONS_H_
