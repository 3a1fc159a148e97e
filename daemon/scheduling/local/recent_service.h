#ifndef DAEMON_SCHEDULING_LOCAL_RECENT_SERVICE_H_
#define DAEMON_SCHEDULING_LOCAL_RECENT_SERVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/optional.h"
#include "daemon/scheduling/local/engine_load.h"

namespace fineserve::sched {

// Counts the outcomes of a model's requests of about the last minute, so that
// an operator hears of an overload while it lasts. Times are of one clock.
// Pure.
class RecentService {
 public:
  static constexpr size_t kWaits = 7;  // values of WaitedFor but kDaemon
  struct Counts {
    uint32_t on_time = 0;                       // first tokens
    uint32_t late = 0;                          // first tokens
    std::array<uint32_t, kWaits> refused = {};  // by what they would wait for
    uint32_t all_refused() const;
    // True if more than kMostMissed of at least kLeast requests missed their
    // SLO.
    bool Burns() const;
  };
  // The slow burn of a budget of 5 % (tools/monitoring), and the number of
  // requests below which a share says little (heuristic).
  static constexpr double kMostMissed = 0.3;
  static constexpr uint32_t kLeast = 10;

  // `ttft`: time since the request arrived.
  void FirstToken(bool on_time, Micros ttft, Micros now);
  void Refused(WaitedFor why, Micros now);

  Counts Of(Micros now) const;
  // Returns the TTFT that this fraction of the first tokens (0.5: the median)
  // did not exceed, accurate to a tenth; nullopt if none came.
  absl::optional<Micros> Ttft(double part, Micros now) const;
  // Returns the time since when it has burnt without a pause; nullopt if it
  // does not burn now.
  absl::optional<Micros> BurnsSince(Micros now) const;

 private:
  static constexpr Micros kBucket = 10'000'000;
  static constexpr size_t kBuckets = 6;
  // TTFTs are counted in classes that end at powers of 2^(1/4) ms; the last
  // class has all TTFTs longer than 2^17 ms.
  static constexpr size_t kTtftClasses = 70;
  struct Bucket {
    Micros number = -1;  // time / kBucket
    Counts counts = {};
    std::array<uint32_t, kTtftClasses> ttfts = {};
  };

  Bucket& Current(Micros now);
  static bool IsRecent(const Bucket& bucket, Micros now);
  void Judge(Micros now);

  std::array<Bucket, kBuckets> buckets_;
  absl::optional<Micros> burns_since_;
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_RECENT_SERVICE_H_
