#ifndef DAEMON_SCHEDULING_EVICT_IDLE_TIMES_H_
#define DAEMON_SCHEDULING_EVICT_IDLE_TIMES_H_

#include <array>

#include "daemon/scheduling/local/predict/ids.h"

namespace fineserve::evict {

// The last fifty or so times for which a model had no request, and what they
// say about the next one. Assumes nothing about their distribution, except for
// a model without a history: for such a model, a wait of any length is as
// likely to double as to end.
class IdleTimes {
 public:
  // Records that a request came after the model had none for `idle`.
  void Ended(sched::Micros idle);

  // Returns the chance that a request comes within `horizon`, if none has come
  // for `idle`. `others`: the times of other models, which count as much as a
  // few of the model's own. O(1).
  double ChanceWithin(sched::Micros horizon, sched::Micros idle,
                      const IdleTimes& others) const;
  // Returns the mean of ChanceWithin over horizons from a few seconds to a few
  // minutes. The sooner a model's next request is likely to come, the higher
  // the value.
  double ChanceSoon(sched::Micros idle, const IdleTimes& others) const;

 private:
  // Bucket b has the times from 2^b to 2^(b+1) ms; the last bucket has all
  // longer ones.
  static constexpr int kBuckets = 36;

  // Returns the weight of the times longer than `idle`.
  double Longer(sched::Micros idle) const;

  std::array<double, kBuckets> weights_ = {};
  double weight_ = 0;  // of all
};

}  // namespace fineserve::evict

#endif  // DAEMON_SCHEDULING_EVICT_IDLE_TIMES_H_
