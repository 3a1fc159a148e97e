#ifndef SHIM_CLASSIFY_CLASSIFY_H_
#define SHIM_CLASSIFY_CLASSIFY_H_

#include <cstdint>

#include "daemon/abi/engine_scoreboard.h"
#include "shim/classify/declared_sizes.h"
#include "shim/classify/rule_matcher.h"

namespace fineserve::shim {

struct Classification {
  bool kv;
  abi::Reason reason;
};

// Decides whether an allocation is KV, and for which reason. Pure. An explicit
// scope decides first, then the native frames (`match` is the rules' verdict on
// them), then a declared size. Nothing is guessed: an allocation that matches
// none of these stays the driver's.
Classification Classify(uint64_t bytes, bool in_scope, const RuleMatch& match,
                        const DeclaredSizes& declared);

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_CLASSIFY_H_
