#ifndef TOOLS_SIM_OPTIONS_H_
#define TOOLS_SIM_OPTIONS_H_

#include <string>

#include "absl/types/variant.h"
#include "bench/workload/load_flags.h"

namespace fineserve::sim {

struct Options {
  workload::LoadFlags load;
  std::string fleet_path, site_path;
  std::string policy;  // empty: the fleet's
  double limit_s = 0;
  bool no_max_tokens = false;
  bool no_bound = false;
  bool frozen = false;
  bool quiet = false;
  std::string json_path, svg_path;
};

// Reads the command line. An int is the exit status: 0 after --help, 2 for
// wrong usage, which standard error explains in one line.
absl::variant<Options, int> ParseOptions(int argc, char** argv);

}  // namespace fineserve::sim

#endif  // TOOLS_SIM_OPTIONS_H_
