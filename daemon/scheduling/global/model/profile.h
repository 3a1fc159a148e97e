#ifndef DAEMON_SCHEDULING_GLOBAL_MODEL_PROFILE_H_
#define DAEMON_SCHEDULING_GLOBAL_MODEL_PROFILE_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fineserve::plan {

// True if a size or time is finite and above 0.
inline bool Positive(double value) { return std::isfinite(value) && value > 0; }

// One measurement of an engine that has its GPUs to itself.
struct OperatingPoint {
  uint32_t batch = 0;          // sequences together
  uint32_t prompt_tokens = 0;  // of each
  double ttft_s = 0;           // until all of them have a first token
  double tpot_s = 0;           // mean of a decode step
  bool operator==(const OperatingPoint&) const = default;
};

// Measurements of an architecture in one quantisation on `tp` GPUs. Bytes are
// of all its shards together.
struct Profile {
  std::string architecture;
  std::string quantisation;
  uint32_t tp = 1;
  double weight_bytes = 0;
  double activation_bytes = 0;  // profiled average
  double kv_token_bytes = 0;    // with quantisation parameters
  std::vector<OperatingPoint> points;
  bool operator==(const Profile&) const = default;

  // "llama-3.1-8b fp8, TP 1".
  std::string Title() const;
};

// InvalidArgument, in one line with the fix, unless all sizes and times are
// finite and positive (activations may be 0) and a step time can be fitted.
absl::Status CheckProfile(const Profile& profile);

// Returns the profiled batches in ascending order.
std::vector<uint32_t> Batches(const Profile& profile);

// Returns the seconds until `batch` prompts of this length have a first token:
// on the line through the two nearest profiled lengths, or in proportion to the
// length if only one is profiled. `batch` must be profiled.
double Ttft(const Profile& profile, uint32_t batch, double prompt_tokens);

// Returns the seconds of a decode step, at the nearest profiled prompt length.
double Tpot(const Profile& profile, uint32_t batch, double prompt_tokens);

// Returns the requests per second that a profiled batch sustains if each
// request takes its prompt's time and a step for each token of its answer (as
// in the released estimator: batch / (TTFT + decode time)).
double RequestRate(const Profile& profile, uint32_t batch, double prompt_tokens,
                   double output_tokens);

// A token of an answer takes c0 + cd · batch seconds, including its share of
// the prompt's time: least squares over the operating points (profile_fit.h).
struct TokenTime {
  double c0 = 0;
  double cd = 0;
};
absl::StatusOr<TokenTime> FitTokenTime(const Profile& profile,
                                       double prompt_tokens,
                                       double output_tokens);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MODEL_PROFILE_H_
