#ifndef DAEMON_CONTRACT_VERDICT_VERDICT_H_
#define DAEMON_CONTRACT_VERDICT_VERDICT_H_

#include <cstdint>

// One request's terms for the scheduler, the wire and the proxy. The numbers
// are those of daemon/contract/wire/admission.fbs, so that a code is cast, not
// listed again; daemon/contract/wire/verdict_codes.h checks that.

namespace fineserve::verdict {

// The reason why a request does not start at all.
enum class Refusal : uint8_t {
  kNone,
  kDeadline,    // its SLO cannot be met
  kTooLong,     // no engine of its model can ever hold it
  kQueueFull,   // too many requests wait
  kNoEngine,    // no engine of its model serves
  kDaemonAway,  // no daemon decides, and the policy is fail_closed (proxy)
};

// The reason why a request waits, or waited when it was last considered before
// its verdict.
enum class WaitedFor : uint8_t {
  kNothing,     // it was decided at once
  kTurn,        // others go first, by deadline, priority or arrival
  kBatch,       // a place among the sequences that its engine runs together
  kKv,          // free KV
  kPrefill,     // its engine fills prompts that it was sent before
  kEngine,      // an engine that takes requests
  kActivation,  // its engine, which is coming back to the GPU
  kDaemon,      // the daemon's word: it is away (proxy)
  kStart,       // its engine, which fsctl up starts on request (proxy)
};

}  // namespace fineserve::verdict

#endif  // DAEMON_CONTRACT_VERDICT_VERDICT_H_
