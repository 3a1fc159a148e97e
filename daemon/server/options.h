#ifndef DAEMON_SERVER_OPTIONS_H_
#define DAEMON_SERVER_OPTIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/variant.h"
#include "daemon/config/config.h"

namespace fineserve::server {

// What fineserved was started with.
struct Options {
  std::string config_path;  // empty: none
  config::Config config;    // file and flags merged
  bool dry_run = false;
};

// Parses the command line, then the file it names, then lets flags override
// the file. If the program is to end at once (help, version, a mistake), gives
// its exit code instead; what there was to say has been printed: one line on
// stderr with the fix for a mistake (exit code 2).
absl::variant<Options, int> ParseOptions(int argc, char** argv);

// The file of `options` read again, with the flags of this run on top.
absl::StatusOr<config::Config> ReadAgain(int argc, char** argv);

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_OPTIONS_H_
