#include "daemon/proxy/exchange/engine_patience.h"

#include <algorithm>

#include "daemon/proxy/admission/liveness.h"

namespace fineserve::proxy {
namespace {

constexpr uint64_t kWithoutStream = 5;
constexpr uint64_t kAtAll = 10;
// Without a sign of life for so long, the engine is asked for one. Heuristic:
// longer than a step takes.
constexpr uint64_t kQuietNs = 2'000'000'000;

bool IsToMove(const EngineWait& wait, bool late) {
  return wait.missed_probes >= Liveness::kMost ||
         (wait.missed_probes > 0 && wait.streams && late);
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
  if (quiet_ns >= kQuietNs && wait.movable && IsToMove(wait, late)) {
    return NextStep::kGiveUp;
  }
  return quiet_ns >= kQuietNs || late ? NextStep::kProbe : NextStep::kWait;
}

}  // namespace fineserve::proxy
