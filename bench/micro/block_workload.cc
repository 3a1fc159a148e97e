#include "bench/micro/block_workload.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace fineserve::bench {

double Ns(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now() - start)
      .count();
}

double CasPair(uint32_t count) {
  static std::atomic<uint32_t> word{0};
  return Ns([&] {
           for (uint32_t i = 0; i < count; ++i) {
             uint32_t expected = 0;
             word.compare_exchange_strong(expected, 1);
             benchmark::DoNotOptimize(expected);
             expected = 1;
             word.compare_exchange_strong(expected, 0);
             benchmark::DoNotOptimize(expected);
           }
         }) /
         count;
}

Workload::Workload(Blocks* blocks) : blocks_(*blocks), live_(kLive) {
  blocks_.Allocate(kLive, live_.data());
  std::shuffle(live_.begin(), live_.end(), random_);
}

Workload::~Workload() { blocks_.Free(kLive, live_.data()); }

double Workload::Steady(uint32_t at_once, uint32_t count) {
  const double ns = Ns([&] {
    for (uint32_t done = 0; done < count; done += at_once) {
      uint32_t* oldest = &live_[next_];
      blocks_.Free(at_once, oldest);
      blocks_.Allocate(at_once, oldest);
      next_ = (next_ + at_once) % kLive;
    }
  });
  return ns / count;
}

double Workload::Burst(uint32_t bursts) {
  constexpr uint32_t kBurst = 512;
  std::vector<uint32_t> ids(kBurst);
  double ns = 0;
  for (uint32_t i = 0; i < bursts; ++i) {
    ns += Ns([&] {
      for (uint32_t& id : ids) blocks_.Allocate(1, &id);
    });
    std::shuffle(ids.begin(), ids.end(), random_);
    ns += Ns([&] {
      for (const uint32_t id : ids) blocks_.Free(1, &id);
    });
  }
  return ns / (bursts * kBurst);
}

}  // namespace fineserve::bench
