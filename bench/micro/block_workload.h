#ifndef BENCH_MICRO_BLOCK_WORKLOAD_H_
#define BENCH_MICRO_BLOCK_WORKLOAD_H_

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace fineserve::bench {

// One engine's way to blocks.
class Blocks {
 public:
  virtual ~Blocks() = default;
  virtual void Allocate(uint32_t count, uint32_t* ids) = 0;
  virtual void Free(uint32_t count, const uint32_t* ids) = 0;
};

double Ns(const std::function<void()>& run);
double Median(std::vector<double> values);

// ns of a pair of CAS on a warm word.
double CasPair(uint32_t count);

// One engine's run: 1,024 blocks are live.
class Workload {
 public:
  static constexpr uint32_t kLive = 1024;

  explicit Workload(Blocks* blocks);
  ~Workload();
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // The oldest go, as many come: ns per block, `at_once` of them a call.
  double Steady(uint32_t at_once, uint32_t count);
  // 512 blocks are taken one by one and then freed in random order.
  double Burst(uint32_t bursts);

 private:
  Blocks& blocks_;
  std::vector<uint32_t> live_;
  uint32_t next_ = 0;
  std::mt19937 random_{42};
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_BLOCK_WORKLOAD_H_
