#include "daemon/proxy/relay/engine_patience.h"

#include <algorithm>

namespace fineserve::proxy {
namespace {

constexpr uint64_t kWithoutStream = 5;
constexpr uint64_t kAtAll = 10;
// After kAskAfterNs without a sign of life the engine is asked for one, so that
// its silence is known when the SLO is over; after kQuietNs a request may move.
// Heuristics: longer than steps take.
constexpr uint64_t kAskAfterNs = 500'000'000;
constexpr uint64_t kQuietNs = 1'500'000'000;
// Limits on an answer to /health, which comes late while an engine is busy.
constexpr uint64_t kOverdueProbeNs = 1'000'000'000;
constexpr uint64_t kDeadProbeNs = 6'000'000'000;

bool IsToMove(const EngineWait& wait, bool late, uint64_t now_ns) {
  if (wait.unanswered_ns == 0 || now_ns < wait.unanswered_ns) return false;
  const uint64_t owed_ns = now_ns - wait.unanswered_ns;
  return owed_ns >= kDeadProbeNs ||
         (owed_ns >= kOverdueProbeNs && wait.streams && late);
}

}  // namespace

NextStep StepOf(const EngineWait& wait, uint64_t limit_ns, uint64_t now_ns) {
  const uint64_t last_ns =
      std::min(now_ns, std::max(wait.since_ns, wait.progressed_ns));
  const uint64_t quiet_ns = now_ns - last_ns;
  const uint64_t most_ns = (wait.streams ? 1 : kWithoutStream) * limit_ns;
  if (quiet_ns >= most_ns || now_ns - wait.since_ns >= kAtAll * limit_ns) {
    return NextStep::kGiveUp;
  }
  const bool late = now_ns >= wait.slo_ends_ns;
  if (quiet_ns >= kQuietNs && wait.movable && IsToMove(wait, late, now_ns)) {
    return NextStep::kGiveUp;
  }
  return quiet_ns >= kAskAfterNs || late ? NextStep::kProbe : NextStep::kWait;
}

}  // namespace fineserve::proxy
