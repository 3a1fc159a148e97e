#ifndef DAEMON_CONTRACT_WIRE_VERDICT_CODES_H_
#define DAEMON_CONTRACT_WIRE_VERDICT_CODES_H_

#include <cstdint>

#include "daemon/contract/verdict/verdict.h"
#include "daemon/contract/wire/message.h"

// Converts the codes of a verdict on the wire to their meanings and back.
// Meanings that only the proxy uses have no code.

namespace fineserve::wire {

constexpr Refusal CodeOf(verdict::Refusal refusal) {
  return static_cast<Refusal>(refusal);
}
constexpr WaitedFor CodeOf(verdict::WaitedFor waited_for) {
  return static_cast<WaitedFor>(waited_for);
}
constexpr Outcome CodeOf(verdict::Outcome outcome) {
  return static_cast<Outcome>(outcome);
}

// A code that only a newer daemon knows becomes the nearest known one.
constexpr verdict::Refusal MeaningOf(Refusal code) {
  return code > Refusal::MAX ? verdict::Refusal::kNoEngine
                             : static_cast<verdict::Refusal>(code);
}
constexpr verdict::WaitedFor MeaningOf(WaitedFor code) {
  return code > WaitedFor::MAX ? verdict::WaitedFor::kTurn
                               : static_cast<verdict::WaitedFor>(code);
}

static_assert(CodeOf(verdict::Refusal::kNone) == Refusal::kNone &&
              CodeOf(verdict::Refusal::kDeadline) == Refusal::kDeadline &&
              CodeOf(verdict::Refusal::kTooLong) == Refusal::kTooLong &&
              CodeOf(verdict::Refusal::kQueueFull) == Refusal::kQueueFull &&
              CodeOf(verdict::Refusal::kNoEngine) == Refusal::kNoEngine &&
              Refusal::MAX == Refusal::kNoEngine);
static_assert(CodeOf(verdict::WaitedFor::kNothing) == WaitedFor::kNothing &&
              CodeOf(verdict::WaitedFor::kTurn) == WaitedFor::kTurn &&
              CodeOf(verdict::WaitedFor::kBatch) == WaitedFor::kBatch &&
              CodeOf(verdict::WaitedFor::kKv) == WaitedFor::kKv &&
              CodeOf(verdict::WaitedFor::kPrefill) == WaitedFor::kPrefill &&
              CodeOf(verdict::WaitedFor::kEngine) == WaitedFor::kEngine &&
              CodeOf(verdict::WaitedFor::kActivation) ==
                  WaitedFor::kActivation &&
              WaitedFor::MAX == WaitedFor::kActivation);
static_assert(CodeOf(verdict::Outcome::kDone) == Outcome::kDone &&
              CodeOf(verdict::Outcome::kClientGone) == Outcome::kClientGone &&
              CodeOf(verdict::Outcome::kEngineGone) == Outcome::kEngineGone &&
              Outcome::MAX == Outcome::kEngineGone);

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_VERDICT_CODES_H_
