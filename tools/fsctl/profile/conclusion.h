#ifndef TOOLS_FSCTL_PROFILE_CONCLUSION_H_
#define TOOLS_FSCTL_PROFILE_CONCLUSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/fleet/config/profile_file.h"
#include "tools/fsctl/profile/point_plan.h"

namespace fineserve::fsctl {

// Conclusions from the samples, together with the user's own figures.
struct Conclusion {
  config::MeasuredProfile profile;
  bool chunk_found = false;  // by which chunk fits best; else given
  // Reasons to doubt the conclusion, each a sentence with its remedy.
  std::vector<std::string> warnings;
};

// Takes the median of each point's samples and fits them
// (daemon/scheduling/local/predict/profile_fit.h). Points without samples are
// left out. If `chunk_tokens` is 0, uses 2048, or the power of two that fits
// clearly better. InvalidArgument, with the fix, if too few points are left.
absl::StatusOr<Conclusion> Conclude(const std::vector<PointSamples>& points,
                                    uint32_t chunk_tokens);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_CONCLUSION_H_
