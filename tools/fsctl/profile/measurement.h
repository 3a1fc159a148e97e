#ifndef TOOLS_FSCTL_PROFILE_MEASUREMENT_H_
#define TOOLS_FSCTL_PROFILE_MEASUREMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/profile/point_plan.h"
#include "tools/openai/target.h"

namespace fineserve::fsctl {

struct MeasurementPlan {
  openai::Target target;
  bool chat = false;
  std::string model;  // empty: the only one
  std::vector<PlannedPoint> points;
  double budget_s = 0;
  bool even_if_busy = false;
  uint64_t seed = 0;  // of the prompts
};

struct Measured {
  std::string model;
  std::vector<PointSamples> points;
};

// Measures a running engine: finds its model, checks that it is idle, counts
// the tokens of words, warms it up, and then repeats the points in turn until
// they agree or the time is over. Progress goes to standard error: on a
// terminal one line that is redrawn, otherwise a line per batch. Errors are one
// line with the fix; Cancelled after SIGINT or SIGTERM.
absl::StatusOr<Measured> Measure(const MeasurementPlan& plan, bool on_terminal);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_MEASUREMENT_H_
