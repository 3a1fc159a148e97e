#ifndef DAEMON_SCHED_PREDICT_PROFILE_FIT_H_
#define DAEMON_SCHED_PREDICT_PROFILE_FIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sched/predict/predictor.h"

namespace fineserve::sched {

// One measurement of an engine that serves nothing else.
struct ProfileRow {
  uint32_t batch;         // prompts together
  uint32_t input_tokens;  // of each
  double prefill_s;       // until the first tokens
  double decode_step_s;   // mean, one token of each of the batch
};

// Errors are means of |fitted − measured| / measured.
struct ProfileFit {
  Profile profile;
  double decode_base_us = 0;  // a step without prefill is cheaper than base_us
  double prefill_error = 0;
  double decode_error = 0;
};

// Least squares of relative errors, so that short prompts count as much as long
// ones: base and per_token from the prefill times, per_sequence from the decode
// steps. A coefficient that would be negative becomes 0, since more work never
// takes less time. InvalidArgument unless there are two different amounts of
// prefill work and two different batches, all times positive.
absl::StatusOr<ProfileFit> FitProfile(const std::vector<ProfileRow>& rows);

}  // namespace fineserve::sched

#endif  // DAEMON_SCHED_PREDICT_PROFILE_FIT_H_
