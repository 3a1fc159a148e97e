#ifndef DAEMON_METRICS_DURATIONS_H_
#define DAEMON_METRICS_DURATIONS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fineserve::metrics {

// Upper bounds of the buckets in seconds: from a driver's call to a request
// that holds a slab for minutes. The last bucket has none.
inline constexpr double kDurationBounds[] = {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3,
                                             0.01, 0.03, 0.1,  0.3,  1,    3,
                                             10,   30,   100,  300};
inline constexpr size_t kDurationBuckets = std::size(kDurationBounds) + 1;

// Counts of durations by bucket, at one time.
struct DurationCounts {
  std::array<uint64_t, kDurationBuckets> buckets = {};  // each by itself
  double sum_s = 0;

  uint64_t count() const {
    uint64_t all = 0;
    for (uint64_t n : buckets) all += n;
    return all;
  }
};

// Counts durations. Any thread may add to it and read it: a reader may see a
// sum that lags behind the buckets.
class Durations {
 public:
  void Add(uint64_t ns) {
    size_t bucket = 0;
    const double s = static_cast<double>(ns) * 1e-9;
    while (bucket < kDurationBuckets - 1 && s > kDurationBounds[bucket]) {
      ++bucket;
    }
    // Relaxed: statistics that publish nothing else.
    buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  }

  DurationCounts Read() const {
    DurationCounts counts;
    for (size_t i = 0; i < kDurationBuckets; ++i) {
      counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    }
    counts.sum_s =
        static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
    return counts;
  }

 private:
  std::array<std::atomic<uint64_t>, kDurationBuckets> buckets_ = {};
  std::atomic<uint64_t> sum_ns_{0};
};

}  // namespace fineserve::metrics

#endif  // DAEMON_METRICS_DURATIONS_H_
