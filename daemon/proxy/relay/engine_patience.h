#ifndef DAEMON_PROXY_RELAY_ENGINE_PATIENCE_H_
#define DAEMON_PROXY_RELAY_ENGINE_PATIENCE_H_

#include <cstdint>

namespace fineserve::proxy {

// A request that waits for its engine. Times are of one clock, in ns.
struct EngineWait {
  uint64_t since_ns = 0;       // it was sent, or had its last event
  uint64_t progressed_ns = 0;  // the engine's last event, of any request
  uint64_t slo_ends_ns = 0;    // for its first token
  uint64_t unanswered_ns = 0;  // of EngineSigns
  bool streams = false;
  bool movable = false;  // its client has nothing, and another engine serves
};

enum class NextStep { kWait, kProbe, kGiveUp };

// Returns what to do about a waiting request. Long prefills and queues are
// normal, so an engine is given up only if it has shown no sign of life towards
// any request for `limit_ns`, or for five times that if the answer does not
// stream and so shows nothing before its end. A request that has itself waited
// for ten times `limit_ns` is given up whatever the engine does for other
// requests. A movable request goes sooner: when the engine has owed its /health
// for six seconds, or for one second while a first token is overdue. So a
// stream moves when its SLO is over, but not before the engine has been silent
// for 1.5 s. Pure.
NextStep StepOf(const EngineWait& wait, uint64_t limit_ns, uint64_t now_ns);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_ENGINE_PATIENCE_H_
