#ifndef DAEMON_CONTRACT_WIRE_TERMS_H_
#define DAEMON_CONTRACT_WIRE_TERMS_H_

#include <cstdint>

#include "daemon/contract/verdict/verdict.h"
#include "daemon/contract/wire/message_types.h"

namespace fineserve::wire {

// Converts a request's terms to the wire and back. A peer may have sent any
// numbers: durations read from it are limited to 35 years, and a prompt has at
// least one token. A request that is already running keeps only what its
// engine's books need.
int64_t Duration(uint64_t us);
void SetTerms(const verdict::Terms& terms, SubmitT* submit);
void SetTerms(const verdict::Terms& terms, RunningRequestT* running);
verdict::Terms TermsOf(const SubmitT& submit);
verdict::Terms TermsOf(const RunningRequestT& running);

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_TERMS_H_
