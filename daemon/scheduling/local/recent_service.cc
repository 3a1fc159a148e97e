#include "daemon/scheduling/local/recent_service.h"

#include <algorithm>
#include <cmath>
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

RecentService::Bucket& RecentService::Current(Micros now) {
  const Micros number = now / kBucket;
  Bucket& bucket = buckets_[static_cast<size_t>(number) % kBuckets];
  if (bucket.number != number) bucket = {number};
  return bucket;
}

bool RecentService::IsRecent(const Bucket& bucket, Micros now) {
  return bucket.number > now / kBucket - static_cast<Micros>(kBuckets);
}

void RecentService::FirstToken(bool on_time, Micros ttft, Micros now) {
  Bucket& bucket = Current(now);
  ++(on_time ? bucket.counts.on_time : bucket.counts.late);
  const double ms = std::max(1.0, static_cast<double>(ttft) / 1000);
  const auto ttft_class = static_cast<size_t>(std::ceil(4 * std::log2(ms)));
  ++bucket.ttfts[std::min(ttft_class, kTtftClasses - 1)];
  Judge(now);
}

void RecentService::Refused(WaitedFor why, Micros now) {
  ++Current(now).counts.refused[static_cast<size_t>(why) % kWaits];
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
    if (!IsRecent(bucket, now)) continue;
    sum.on_time += bucket.counts.on_time;
    sum.late += bucket.counts.late;
    for (size_t i = 0; i < kWaits; ++i) {
      sum.refused[i] += bucket.counts.refused[i];
    }
  }
  return sum;
}

absl::optional<Micros> RecentService::Ttft(double part, Micros now) const {
  std::array<uint32_t, kTtftClasses> ttfts = {};
  for (const Bucket& bucket : buckets_) {
    if (!IsRecent(bucket, now)) continue;
    for (size_t i = 0; i < kTtftClasses; ++i) ttfts[i] += bucket.ttfts[i];
  }
  const uint64_t all = std::accumulate(ttfts.begin(), ttfts.end(), uint64_t{0});
  if (all == 0) return absl::nullopt;
  double left = part * static_cast<double>(all);
  size_t i = 0;
  for (; i + 1 < kTtftClasses && left > ttfts[i]; ++i) left -= ttfts[i];
  // The middle of the class, whose limits are a factor of 1.19 apart.
  const double ms = std::exp2((static_cast<double>(i) - 0.5) / 4);
  return static_cast<Micros>(1000 * std::max(1.0, ms));
}

absl::optional<Micros> RecentService::BurnsSince(Micros now) const {
  return Of(now).Burns() ? burns_since_ : absl::nullopt;
}

}  // namespace fineserve::sched
