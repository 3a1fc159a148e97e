#ifndef DAEMON_SCHEDULING_LOCAL_PREDICT_IDS_H_
#define DAEMON_SCHEDULING_LOCAL_PREDICT_IDS_H_

#include <cstdint>
#include <limits>

namespace fineserve::sched {

// An instant of CLOCK_MONOTONIC, or a duration; microseconds. Deadlines are
// compared, so it is an integer: equal inputs give equal decisions.
using Micros = int64_t;
inline constexpr Micros kNever = std::numeric_limits<Micros>::max();

// Indices are separate types, so that one cannot be mistaken for another.
enum class RequestId : uint64_t {};  // the caller's, unique while it lives
enum class ModelId : uint32_t {};    // place in the scheduler's list of models
enum class ReplicaId : uint32_t {};  // the caller's

template <typename Id>
constexpr uint64_t Number(Id id) {
  return static_cast<uint64_t>(id);
}

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_PREDICT_IDS_H_
