#ifndef DAEMON_FLEET_CONFIG_PROFILE_FILE_H_
#define DAEMON_FLEET_CONFIG_PROFILE_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/fleet/config/toml_keys.h"

namespace fineserve::config {

// Time of an engine's step on its GPU alone, in µs: base + per_token for each
// token of prefill + per_sequence for each sequence that runs
// (daemon/scheduling/local/predict/predictor.h).
struct StepProfile {
  double base_us = 0;
  double per_token_us = 0;
  double per_sequence_us = 0;
  bool operator==(const StepProfile&) const = default;
};

// Measurement of one batch of prompts of one length. A spread is the median
// distance of the repetitions from their median, as a fraction of that median.
struct ProfilePoint {
  uint32_t batch = 0;
  uint32_t prompt_tokens = 0;  // of each, as the engine counts them
  double ttft_s = 0;           // until all of them have a first token
  double step_s = 0;           // a token of each
  double ttft_spread = 0;
  double step_spread = 0;
  uint32_t repetitions = 0;
  bool operator==(const ProfilePoint&) const = default;
};

// Fit of the steps' form to the points: standard errors in µs, and means of
// |fitted − measured| / measured. A standard error of 0 in the file also means
// that there were too few points to tell.
struct ProfileQuality {
  StepProfile standard_errors;
  double prefill_error = 0;
  double decode_error = 0;
  bool operator==(const ProfileQuality&) const = default;
};

// The content of a profile file, which `fsctl profile` writes and fleet files
// and the planner read. An example with every key:
//
//   model = "llama-8b-fp16"
//   url = "http://127.0.0.1:9001"
//   chunk_tokens = 2048              # that the engine fills a step
//   architecture = "llama-3.1-8b"    # from here to kv_token_bytes: given, not
//   quantisation = "fp16"            # measured; absent if not given
//   tp = 1
//   weight_bytes = 16060522496       # of all shards
//   activation_bytes = 285212672
//   kv_token_bytes = 131072
//
//   [step]
//   base_us = 7600
//   per_token_us = 16
//   per_sequence_us = 64
//   decode_base_us = 7600            # of a step that fills no prompt
//
//   [quality]
//   base_error_us = 80
//   per_token_error_us = 0.1
//   per_sequence_error_us = 2
//   prefill_error = 0.03
//   decode_error = 0.01
//
//   [[point]]
//   batch = 8
//   prompt_tokens = 256
//   ttft_s = 0.05
//   step_s = 0.0081
//   ttft_spread = 0.01
//   step_spread = 0.002
//   repetitions = 3
struct MeasuredProfile {
  std::string model;
  std::string url;
  uint32_t chunk_tokens = 0;
  std::string architecture, quantisation;
  uint32_t tp = 1;
  double weight_bytes = 0;      // 0: not given, like the next two
  double activation_bytes = 0;  // profiled average
  uint32_t kv_token_bytes = 0;
  StepProfile step;
  double decode_base_us = 0;
  ProfileQuality quality;
  std::vector<ProfilePoint> points;
  bool operator==(const MeasuredProfile&) const = default;
};

// Reads a profile file. Returns the same errors as ReadFleet.
absl::StatusOr<MeasuredProfile> ReadProfile(const std::string& path);

// Resolves the profile file `written` in a file at `path`: relative to that
// file's folder, unless it is an absolute path.
std::string ProfilePath(const std::string& path, const std::string& written);

// Returns the text of the profile's file, from which ReadProfile returns the
// same profile.
std::string ProfileText(const MeasuredProfile& profile);

// Receives a profile and the path of its file.
using TakeProfile = std::function<void(const std::string& found,
                                       const MeasuredProfile& profile)>;

// A setter for `key`, in the file at `path`, whose value names a profile file.
// Errors have the line of the file at `path`, then the line of the profile
// file.
Setter ProfileKey(const std::string& path, const std::string& key,
                  TakeProfile take);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_PROFILE_FILE_H_
