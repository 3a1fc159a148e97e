#ifndef DAEMON_SCHEDULING_LOCAL_KV_BOOKING_H_
#define DAEMON_SCHEDULING_LOCAL_KV_BOOKING_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/optional.h"
#include "kernels/driver/rounding.h"

namespace fineserve::sched {

// Limit on how far ahead growth is considered: some seconds of decoding, within
// which as many other requests end. Heuristic.
inline constexpr uint32_t kHorizonTokens = 512;

// A sequence of an engine, in tokens of KV.
struct KvClaim {
  uint64_t present = 0;  // that it takes now
  uint32_t growth = 0;  // steps for which it is expected to grow; ≤ the horizon
  uint64_t slope = kHorizonTokens;  // that a horizon of steps adds

  uint64_t Added() const { return DivideUp(growth * slope, kHorizonTokens); }
  uint64_t end() const { return present + Added(); }
};

// Upper bound on the KV that an engine's sequences need at any one time. They
// grow side by side, a token a step each or, where not every token takes room,
// by their slope, and give everything back at their end. So the sequences that
// are still there after t steps need
//
//   use(t) = Σ present_i + t · slope_i   over i with growth_i ≥ t
//
// The peak over t is less than Σ end_i unless all of them end together. Their
// ends are only expected. If each sequence is as likely still there as gone,
// the sum's standard deviation is ½ √Σ end_i². This much is kept free beside
// the peak, but peak and reserve together never exceed Σ end_i. Confined to one
// thread.
class KvBooking {
 public:
  void Add(const KvClaim& claim);
  // REQUIRES: the claim was added.
  void Remove(const KvClaim& claim);

  // Tokens to keep for them all.
  uint64_t Tokens() const;
  // Returns the same as if this claim joined them.
  uint64_t TokensWith(const KvClaim& claim) const;

 private:
  // Growth is counted in steps of this many tokens, rounded up.
  static constexpr uint32_t kStepTokens = 16;
  static constexpr size_t kSteps = kHorizonTokens / kStepTokens + 1;

  // The sequences that end after the same number of steps.
  struct Cohort {
    uint64_t present = 0;
    uint64_t slopes = 0;
  };
  Cohort& CohortOf(const KvClaim& claim);
  uint64_t Peak() const;

  std::array<Cohort, kSteps> cohorts_;
  uint64_t ends_ = 0;     // Σ end
  uint64_t squares_ = 0;  // Σ end²
  // The result of Tokens(), which is called more often than claims change.
  mutable absl::optional<uint64_t> tokens_;
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_KV_BOOKING_H_
