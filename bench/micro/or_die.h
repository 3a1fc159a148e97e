#ifndef BENCH_MICRO_OR_DIE_H_
#define BENCH_MICRO_OR_DIE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "bench/micro/report.h"

namespace fineserve::bench {

// Returns the value; an error ends the bench with its message.
template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) Die(std::string(result.status().message()));
  return *std::move(result);
}

inline void OkOrDie(const absl::Status& s) {
  if (!s.ok()) Die(std::string(s.message()));
}

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_OR_DIE_H_
