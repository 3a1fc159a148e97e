#ifndef BENCH_LOADGEN_PROGRESS_H_
#define BENCH_LOADGEN_PROGRESS_H_

#include <cstddef>

#include "bench/workload/metrics.h"

namespace fineserve::loadgen {

// One line on standard error that is drawn again and again:
//
//   [=====>        ] 21/60 s  sent 1203/3400, running 32, dropped 4, failed 0,
//   on time 97.3 %
class Progress {
 public:
  Progress(bool shown, double seconds, size_t requests)
      : shown_(shown), seconds_(seconds), requests_(requests) {}

  bool shown() const { return shown_; }
  void Ended(workload::End end, bool attained);
  void Show(double now_s, size_t sent, size_t flying) const;
  void Clear() const;

 private:
  const bool shown_;
  const double seconds_;
  const size_t requests_;
  size_t ended_ = 0, attained_ = 0, dropped_ = 0, failed_ = 0;
};

}  // namespace fineserve::loadgen

#endif  // BENCH_LOADGEN_PROGRESS_H_
