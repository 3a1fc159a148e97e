#ifndef DAEMON_PROXY_OPTIONS_H_
#define DAEMON_PROXY_OPTIONS_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/variant.h"
#include "daemon/proxy/proxy.h"

namespace fineserve::proxy {

// Options of what the proxy records about requests.
struct FollowOptions {
  size_t recent_requests = 1000;
  std::string access_log;     // a file or "-"; empty: none
  std::string otlp_endpoint;  // URL; empty: requests are not traced
  double trace_sample = 1;
};

// Command-line options of fineserve-proxy.
struct Options {
  std::string fleet_path;
  std::string listen;       // empty: the fleet's
  std::string admin;        // empty: the fleet's
  std::string runtime_dir;  // fineserved's; empty: the usual one
  std::string log_level = "info";
  Limits limits;
  FollowOptions follow;
  std::string tls_cert, tls_key;  // paths; empty: clients speak plainly
  bool check_only = false;
};

// Parses the command line. If the program is to end at once (help, version, a
// mistake), prints the reason and returns its exit code instead.
absl::variant<Options, int> ParseOptions(int argc, char** argv);

// Reads the fleet and the keys that it names, and applies the flags on top. An
// error says in one line what to change.
absl::StatusOr<Setup> ReadSetup(const Options& options);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_OPTIONS_H_
