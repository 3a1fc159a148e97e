#ifndef TOOLS_LAB_SIM_REPORT_REPORT_H_
#define TOOLS_LAB_SIM_REPORT_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/types/optional.h"
#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/sim/fleet/world.h"

namespace fineserve::sim {

// A simulation's report. Its figures have the names and definitions of
// loadgen's report (tools/lab/workload/summary_json.h), so that the two can be
// compared directly.
struct Report {
  const World* world = nullptr;
  const RunResult* result = nullptr;
  std::string load;    // the file that the requests come from
  std::string source;  // where the site's numbers come from
  uint64_t seed = 0;
  // Upper bound on the number of first tokens on time; none: not computed.
  absl::optional<uint64_t> bound;
};

// Prints a table with a row for each model.
void Print(const Report& report);
// The text ends with a newline, and equal reports give the same bytes.
std::string ToJson(const Report& report);
// Plots the requests sent, done and on time, over time.
std::string ToSvg(const Report& report);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_REPORT_REPORT_H_
