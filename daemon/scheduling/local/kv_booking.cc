#include "daemon/scheduling/local/kv_booking.h"

#include <algorithm>
#include <cmath>

namespace fineserve::sched {
namespace {

// The limit makes the sum of the squares of 2¹⁶ sequences fit into 64 bits.
uint64_t SquareOf(const KvClaim& claim) {
  const uint64_t end = std::min(claim.end(), (uint64_t{1} << 24) - 1);
  return end * end;
}

}  // namespace

KvBooking::Cohort& KvBooking::CohortOf(const KvClaim& claim) {
  const size_t step = (claim.growth + kStepTokens - 1) / kStepTokens;
  return cohorts_[std::min(step, kSteps - 1)];
}

void KvBooking::Add(const KvClaim& claim) {
  tokens_.reset();
  Cohort& cohort = CohortOf(claim);
  cohort.present += claim.present;
  cohort.slopes += claim.slope;
  ends_ += claim.end();
  squares_ += SquareOf(claim);
}

void KvBooking::Remove(const KvClaim& claim) {
  tokens_.reset();
  Cohort& cohort = CohortOf(claim);
  cohort.present -= claim.present;
  cohort.slopes -= claim.slope;
  ends_ -= claim.end();
  squares_ -= SquareOf(claim);
}

uint64_t KvBooking::Peak() const {
  uint64_t peak = 0, present = 0, slopes = 0;
  for (size_t step = kSteps; step-- > 0;) {  // those that end last first
    present += cohorts_[step].present;
    slopes += cohorts_[step].slopes;
    peak = std::max(
        peak, present + DivideUp(slopes * step * kStepTokens, kHorizonTokens));
  }
  return peak;
}

uint64_t KvBooking::Tokens() const {
  if (!tokens_) {
    const auto spread =
        static_cast<uint64_t>(std::sqrt(static_cast<double>(squares_)) / 2);
    tokens_ = std::min(ends_, Peak() + spread);
  }
  return *tokens_;
}

uint64_t KvBooking::TokensWith(const KvClaim& claim) const {
  KvBooking with = *this;
  with.Add(claim);
  return with.Tokens();
}

}  // namespace fineserve::sched
