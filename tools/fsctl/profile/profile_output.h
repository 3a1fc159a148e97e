#ifndef TOOLS_FSCTL_PROFILE_PROFILE_OUTPUT_H_
#define TOOLS_FSCTL_PROFILE_PROFILE_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "tools/fsctl/profile/conclusion.h"

namespace fineserve::fsctl {

// Output of `fsctl profile`, without the warnings, which go to standard error.
std::string ConclusionText(const Conclusion& conclusion, bool color);
std::string ConclusionJson(const Conclusion& conclusion);

// "[=====>   ] 12/54  batch 8, 256 tokens  41 s, about 60 s left" in `columns`
// at most.
struct Progress {
  size_t done = 0;
  size_t all = 0;
  double elapsed_s = 0;
  double budget_s = 0;
  std::string now;  // what is measured
};
std::string ProgressText(const Progress& progress, size_t columns);

// Fails, with the reason, if the file clearly cannot be written, or is not a
// regular file, which WriteProfile would replace with one. Call it before
// minutes of work.
absl::Status CheckWritable(const std::string& path);

// Replaces the file's content (base::ReplaceFile). Errors say what to do.
absl::Status WriteProfile(const std::string& path, const std::string& text);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_PROFILE_OUTPUT_H_
