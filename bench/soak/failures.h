#ifndef BENCH_SOAK_FAILURES_H_
#define BENCH_SOAK_FAILURES_H_

#include <array>
#include <cstddef>
#include <mutex>
#include <string>

namespace fineserve::bench {

enum class Fault : size_t {
  kForeignBytes,  // an engine found bytes in its KV that are not its own
  kEnded,         // a program that was not killed ended, or did not start
  kNotAtRest,     // slabs, engines or requests that stayed in the books
  kWrongAnswer,   // a token, a status or an end that must not be
  kNoAnswer,      // a request without an answer in time
  kOutside,       // a process outside of the pool that did not say so
};
inline constexpr size_t kFaults = 6;

// The failures of a soak. Thread-safe.
class Failures {
 public:
  explicit Failures(std::string reproduce) : reproduce_(std::move(reproduce)) {}

  // Prints `what` on standard error, the first time with the command that
  // repeats the run. After many failures, only counts them.
  void Add(Fault fault, const std::string& what);

  size_t Count(Fault fault) const;

 private:
  const std::string reproduce_;
  mutable std::mutex mutex_;
  std::array<size_t, kFaults> counts_ = {};
  size_t printed_ = 0;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_FAILURES_H_
