#include "tools/lab/engines/tinyserve/engine/step_time.h"

namespace tinyserve {

std::chrono::nanoseconds StepCost::Of(const std::vector<Work>& step) const {
  double us = base_us;
  for (const Work& work : step) {
    const uint32_t computed = work.sequence->computed;
    const uint32_t prompt = work.sequence->prompt_tokens;
    const uint32_t end = computed + work.tokens;
    // A token that is computed again after a preemption costs as much as one of
    // the prompt.
    const bool decodes = work.tokens == 1 && end > prompt;
    us += decodes ? per_sequence_us : per_token_us * work.tokens;
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000 / speed));
}

Time StepPacer::End(Time now, std::chrono::nanoseconds cost) {
  end_ = (end_ == Time{} ? now : end_) + cost;
  return end_;
}

std::chrono::nanoseconds StepPacer::Late(Time now) {
  if (now <= end_) return {};
  const std::chrono::nanoseconds late = now - end_;
  end_ = now;
  return late;
}

}  // namespace tinyserve
