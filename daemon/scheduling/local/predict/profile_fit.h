#ifndef DAEMON_SCHEDULING_LOCAL_PREDICT_PROFILE_FIT_H_
#define DAEMON_SCHEDULING_LOCAL_PREDICT_PROFILE_FIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/scheduling/local/predict/predictor.h"

namespace fineserve::sched {

// One measurement of an engine that serves nothing else.
struct ProfileRow {
  uint32_t batch;         // prompts together
  uint32_t input_tokens;  // of each
  double prefill_s;       // until the first tokens
  double decode_step_s;   // mean, one token of each of the batch
};

// The standard error of each coefficient, from the residuals of the fit. NaN
// unless there are more rows than coefficients; 0 for a coefficient that was
// set to 0.
struct StandardErrors {
  double base_us = 0;
  double per_token_us = 0;
  double per_sequence_us = 0;
  double decode_base_us = 0;
};

// Errors are means of |fitted − measured| / measured.
struct ProfileFit {
  Profile profile;
  double decode_base_us = 0;  // a step without prefill is cheaper than base_us
  double prefill_error = 0;
  double decode_error = 0;
  StandardErrors standard_errors = {};
};

// Least squares of relative errors, so that short prompts count as much as long
// ones: base and per_token from the prefill times, per_sequence from the decode
// steps. A coefficient that would be negative becomes 0, since more work never
// takes less time. InvalidArgument unless there are two different amounts of
// prefill work and two different batches, all times positive.
//
// This takes a batch for one step, as offline engines measure it.
absl::StatusOr<ProfileFit> FitProfile(const std::vector<ProfileRow>& rows);

// Does the same for an engine that serves: a batch takes the steps that
// BatchSteps counts. Also InvalidArgument if these steps do not separate the
// base from the tokens.
absl::StatusOr<ProfileFit> FitServedProfile(const std::vector<ProfileRow>& rows,
                                            uint32_t chunk_tokens);

// Steps in which an idle engine fills a batch that is sent to it at once.
struct FilledSteps {
  uint32_t steps = 0;
  uint64_t decoded = 0;  // tokens that its first prompts generate in these
                         // steps
};

// Returns the steps for a batch. The engine begins with only the first prompt,
// and takes the others in when that step ends. A step fills `chunk_tokens`, of
// which each sequence that already runs takes one, and fills prompts in order.
FilledSteps BatchSteps(uint32_t batch, uint32_t input_tokens,
                       uint32_t chunk_tokens);

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_PREDICT_PROFILE_FIT_H_
