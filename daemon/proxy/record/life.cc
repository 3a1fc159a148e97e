#include "daemon/proxy/record/life.h"

#include <algorithm>

namespace fineserve::proxy {

LifeAttempt& Life::NextAttempt() {
  attempt_count = std::min(attempt_count + 1, kMostAttempts);
  attempt() = LifeAttempt();
  return attempt();
}

absl::string_view Word(Ending ending) {
  switch (ending) {
    case Ending::kNotYet:
      return "not yet";
    case Ending::kAnswered:
      return "answered";
    case Ending::kRefused:
      return "refused";
    case Ending::kClientLeft:
      return "client left";
    case Ending::kEngineDied:
      return "engine died";
  }
  return "";
}

absl::string_view Word(WaitedFor waited_for) {
  switch (waited_for) {
    case WaitedFor::kNothing:
      return "";
    case WaitedFor::kTurn:
      return "turn";
    case WaitedFor::kBatch:
      return "batch";
    case WaitedFor::kKv:
      return "kv";
    case WaitedFor::kPrefill:
      return "prefill";
    case WaitedFor::kEngine:
      return "engine";
    case WaitedFor::kActivation:
      return "activation";
    case WaitedFor::kDaemon:
      return "daemon";
    case WaitedFor::kStart:
      return "start";
  }
  return "";
}

absl::string_view Word(DecidedBy decided_by) {
  switch (decided_by) {
    case DecidedBy::kNobody:
      return "";
    case DecidedBy::kDaemon:
      return "fineserved";
    case DecidedBy::kProxy:
      return "proxy";
  }
  return "";
}

}  // namespace fineserve::proxy
