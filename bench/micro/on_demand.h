#ifndef BENCH_MICRO_ON_DEMAND_H_
#define BENCH_MICRO_ON_DEMAND_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/micro/published_latency.h"

namespace fineserve::bench {

// Blocks on pages that are mapped when they are needed and unmapped when they
// are empty: kvcached's allocator, re-implemented from its description as the
// baseline. Blocks come from the page with the most used blocks. With the
// buffer a thread keeps `kBufferLow` pages mapped in advance, and up to
// `kBufferHigh` emptied pages are kept.
//
// Instead of calling a driver it spins for the published latency. For one
// engine and one thread.
class OnDemand {
 public:
  // These are kvcached's defaults for its reserved pages.
  static constexpr uint32_t kBufferLow = 5;
  static constexpr uint32_t kBufferHigh = 10;

  OnDemand(uint32_t pages, uint32_t blocks_per_page, uint32_t planes,
           const DriverLatency& latency, bool buffer);
  ~OnDemand();

  bool Allocate(uint32_t count, uint32_t* ids);
  void Free(uint32_t count, const uint32_t* ids);

  uint64_t driver_calls() const {
    return driver_calls_.load(std::memory_order_relaxed);
  }

 private:
  struct Page {
    std::vector<uint32_t> free;  // ids; all of them when the page is empty
    uint32_t in_use_at = 0;      // position in used_[…], when in use
  };

  uint32_t AllocateOne();
  uint32_t FreshPage();
  void MapPage(uint32_t page);
  void UnmapPage(uint32_t page);
  void Refill();
  void Spin(uint64_t ns);

  const uint32_t blocks_per_page_;
  const uint32_t planes_;
  const DriverLatency latency_;
  const bool buffer_;
  std::vector<Page> pages_;
  // Mapped pages with both used and free blocks, by their number of free
  // blocks.
  std::vector<std::vector<uint32_t>> partial_;
  std::atomic<uint64_t> driver_calls_{0};

  std::mutex mutex_;  // guards what follows, which the refiller shares
  std::condition_variable refill_;
  std::vector<uint32_t> unmapped_;
  std::vector<uint32_t> mapped_;  // the buffer
  bool stop_ = false;
  std::thread refiller_;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_ON_DEMAND_H_
