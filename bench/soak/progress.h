#ifndef BENCH_SOAK_PROGRESS_H_
#define BENCH_SOAK_PROGRESS_H_

#include <cstdint>
#include <mutex>
#include <string>

namespace fineserve::bench {

// One line on standard error, if that is a terminal, drawn again and again:
//
//   engines killed [=====>        ] 1203/10000
//
// Thread-safe.
class Progress {
 public:
  Progress(std::string what, uint64_t of);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Removes the line.
  ~Progress();

  void Add(uint64_t done);

 private:
  const std::string what_;
  const uint64_t of_;
  const bool shown_;
  std::mutex mutex_;
  uint64_t done_ = 0;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_PROGRESS_H_
