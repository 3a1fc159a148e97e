#ifndef BENCH_MICRO_BLOCK_WORKLOAD_H_
#define BENCH_MICRO_BLOCK_WORKLOAD_H_

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace fineserve::bench {

// An implementation by which an engine gets and frees blocks.
class Blocks {
 public:
  virtual ~Blocks() = default;
  virtual void Allocate(uint32_t count, uint32_t* ids) = 0;
  virtual void Free(uint32_t count, const uint32_t* ids) = 0;
};

double Ns(const std::function<void()>& run);

// Returns the ns of two CAS on a cached word.
double CasPair(uint32_t count);

// The load of one engine, in which 1,024 blocks are live. Both functions return
// ns per block.
class Workload {
 public:
  static constexpr uint32_t kLive = 1024;

  explicit Workload(Blocks* blocks);
  ~Workload();
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // Frees the oldest blocks and takes the same number of new ones, `at_once` in
  // each call.
  double Steady(uint32_t at_once, uint32_t count);
  // Takes 512 blocks one by one and then frees them in random order.
  double Burst(uint32_t bursts);

 private:
  Blocks& blocks_;
  std::vector<uint32_t> live_;
  uint32_t next_ = 0;
  std::mt19937 random_{42};
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_BLOCK_WORKLOAD_H_
