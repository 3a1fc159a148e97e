#ifndef BENCH_MICRO_TIMED_MOVE_H_
#define BENCH_MICRO_TIMED_MOVE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/observer_link.h"

namespace fineserve::bench {

struct TimedMove {
  double seconds = 0;
  uint64_t bytes = 0;
};

// Moves an engine's resident memory and waits until that is done. Returns
// NotFound if the daemon has no such engine, otherwise the errors of
// abi::MoveEngine.
absl::StatusOr<TimedMove> MoveTimed(const abi::ObserverLink& link,
                                    const std::string& engine, abi::Place to);

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_TIMED_MOVE_H_
