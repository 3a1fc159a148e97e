#ifndef DAEMON_NODE_OPTIONS_H_
#define DAEMON_NODE_OPTIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/variant.h"
#include "daemon/node/node.h"

namespace fineserve::node {

// Command-line options of fineserve-node.
struct Options {
  std::string fleet_path;
  std::string runtime_dir;  // fineserved's; empty: the usual one
  std::string log_level = "info";
  bool check_only = false;
};

// Parses the command line. If the program should exit at once (help, version, a
// mistake), prints the reason and returns its exit code instead.
absl::variant<Options, int> ParseOptions(int argc, char** argv);

// Reads the fleet file and determines which machine this is. An error says in
// one line what to change.
absl::StatusOr<Node::Setup> ReadSetup(const Options& options);

}  // namespace fineserve::node

#endif  // DAEMON_NODE_OPTIONS_H_
