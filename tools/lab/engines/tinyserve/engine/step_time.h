#ifndef TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_STEP_TIME_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_STEP_TIME_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "tools/lab/engines/tinyserve/engine/scheduler.h"
#include "tools/lab/engines/tinyserve/engine/sequence.h"

namespace tinyserve {

// Time of a step of the modelled GPU: affine in the prompt tokens that it
// computes and the sequences that it decodes.
//
// The defaults are Llama-3.1-8B in FP16 on one GPU: least squares of relative
// errors over the 12 rows "llama-3.1-8b,org,1,100" of
// calibration_fineserve_apex_profile.csv (BSD-3, llm-fineserve/FineServe), a
// prefill step for batch × input tokens and a decode step for the batch; they
// are met within -25 % and +30 %.
struct StepCost {
  double base_us = 7600;
  double per_token_us = 16;
  double per_sequence_us = 64;
  double speed = 1;  // divides the time of a step

  std::chrono::nanoseconds Of(const std::vector<Work>& step) const;
};

// Each of several consecutive steps begins when the step before it was due to
// end, so that late wake-ups do not add up. Confined to one thread.
class StepPacer {
 public:
  // Returns the time at which the step that is about to begin must end.
  Time End(Time now, std::chrono::nanoseconds cost);

  // Returns how late the last step ended, or 0. If it was late, the next step
  // begins at `now`.
  std::chrono::nanoseconds Late(Time now);

  // Called when the engine has nothing to do: the next step begins when End is
  // called.
  void Rest() { end_ = {}; }

 private:
  Time end_ = {};  // of the last step; {} after a rest
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_STEP_TIME_H_
