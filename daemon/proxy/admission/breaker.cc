#include "daemon/proxy/admission/breaker.h"

#include <algorithm>
#include <bit>

namespace fineserve::proxy {

void Breaker::Sent(uint64_t now_ns) {
  if (!is_open() || !Lets(now_ns)) return;
  on_trial_ = true;
  lets_at_ns_ = now_ns + rest_ns_;
}

// While it is open and nothing is on trial, requests end that were sent before:
// they say nothing new.
void Breaker::Answered() {
  if (!is_open()) {
    Judge(/*failed=*/false);
  } else if (on_trial_) {
    *this = Breaker();
  }
}

void Breaker::Failed(uint64_t now_ns) {
  if (is_open()) {
    if (on_trial_) Rest(std::min(2 * rest_ns_, kMostRestNs), now_ns);
    return;
  }
  Judge(/*failed=*/true);
  const bool half =
      judged_ == kJudged &&
      2 * static_cast<uint32_t>(std::popcount(failed_)) >= kJudged;
  if (in_a_row_ >= kMostInARow || half) Rest(kLeastRestNs, now_ns);
}

void Breaker::Judge(bool failed) {
  in_a_row_ = failed ? in_a_row_ + 1 : 0;
  judged_ = std::min(judged_ + 1, kJudged);
  failed_ = (failed_ << 1 | (failed ? 1 : 0)) & ((1u << kJudged) - 1);
}

void Breaker::Rest(uint64_t rest_ns, uint64_t now_ns) {
  rest_ns_ = rest_ns;
  lets_at_ns_ = now_ns + rest_ns;
  on_trial_ = false;
}

}  // namespace fineserve::proxy
