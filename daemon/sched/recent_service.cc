#include "daemon/sched/recent_service.h"

#include <numeric>

namespace fineserve::sched {

uint32_t RecentService::Counts::all_refused() const {
  return std::accumulate(refused.begin(), refused.end(), 0u);
}

bool RecentService::Counts::Burns() const {
  const uint32_t missed = late + all_refused();
  const uint32_t all = on_time + missed;
  return all >= kLeast && missed > kMostMissed * all;
}

RecentService::Counts& RecentService::Current(Micros now) {
  const Micros number = now / kBucket;
  Bucket& bucket = buckets_[static_cast<size_t>(number) % kBuckets];
  if (bucket.number != number) bucket = {number, {}};
  return bucket.counts;
}

void RecentService::FirstToken(bool on_time, Micros now) {
  Counts& counts = Current(now);
  ++(on_time ? counts.on_time : counts.late);
  Judge(now);
}

void RecentService::Refused(WaitedFor why, Micros now) {
  ++Current(now).refused[static_cast<size_t>(why) % kWaits];
  Judge(now);
}

void RecentService::Judge(Micros now) {
  if (!Of(now).Burns()) {
    burns_since_.reset();
  } else if (!burns_since_) {
    burns_since_ = now;
  }
}

RecentService::Counts RecentService::Of(Micros now) const {
  Counts sum;
  for (const Bucket& bucket : buckets_) {
    if (bucket.number <= now / kBucket - static_cast<Micros>(kBuckets)) {
      continue;
    }
    sum.on_time += bucket.counts.on_time;
    sum.late += bucket.counts.late;
    for (size_t i = 0; i < kWaits; ++i) {
      sum.refused[i] += bucket.counts.refused[i];
    }
  }
  return sum;
}

absl::optional<Micros> RecentService::BurnsSince(Micros now) const {
  return Of(now).Burns() ? burns_since_ : absl::nullopt;
}

}  // namespace fineserve::sched
