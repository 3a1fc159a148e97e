#include "shim/classify/classify.h"

namespace fineserve::shim {

Classification Classify(uint64_t bytes, bool in_scope, const RuleMatch& match,
                        const DeclaredSizes& declared) {
  if (in_scope) return {true, abi::Reason::kScope};
  if (match.found && match.kv) return {true, abi::Reason::kFrames};
  if (match.found) return {false, abi::Reason::kExcluded};
  if (declared.Contains(bytes)) return {true, abi::Reason::kDeclaredSize};
  return {false, abi::Reason::kNotKv};
}

}  // namespace fineserve::shim
