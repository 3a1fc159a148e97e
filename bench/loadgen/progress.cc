#include "bench/loadgen/progress.h"

#include <stdio.h>

#include <algorithm>
#include <string>

namespace fineserve::loadgen {

void Progress::Ended(workload::End end, bool attained) {
  ++ended_;
  attained_ += attained ? 1 : 0;
  dropped_ += end == workload::End::kDropped ? 1 : 0;
  failed_ += end == workload::End::kFailed ? 1 : 0;
}

void Progress::Show(double now_s, size_t sent, size_t flying) const {
  constexpr size_t kColumns = 24;
  const double part = seconds_ > 0 ? std::min(now_s / seconds_, 1.0) : 1;
  const auto filled = static_cast<size_t>(part * kColumns);
  const std::string bar =
      std::string(filled, '=') + (filled < kColumns ? ">" : "");
  const double on_time = ended_ == 0 ? 0
                                     : 100 * static_cast<double>(attained_) /
                                           static_cast<double>(ended_);
  fprintf(stderr,
          "\r\033[K[%-*s] %.0f/%.0f s  sent %zu/%zu, running %zu, dropped %zu, "
          "failed %zu, on time %.1f %%",
          static_cast<int>(kColumns), bar.c_str(), now_s, seconds_, sent,
          requests_, flying, dropped_, failed_, on_time);
  fflush(stderr);
}

void Progress::Clear() const {
  if (shown_) fprintf(stderr, "\r\033[K");
}

}  // namespace fineserve::loadgen
