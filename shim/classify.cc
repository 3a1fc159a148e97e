#include "shim/classify.h"

#include <algorithm>

namespace fineserve::shim {

void DeclaredSizes::Set(const uint64_t* sizes, uint32_t count) {
  count = std::min(count, abi::kDeclaredSizeCapacity);
  for (uint32_t i = 0; i < count; ++i) {
    sizes_[i].store(sizes[i], std::memory_order_relaxed);
  }
  // Release: publishes the sizes. Pairs with the acquire in Contains.
  count_.store(count, std::memory_order_release);
}

bool DeclaredSizes::Contains(uint64_t bytes) const {
  const uint32_t count = count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (sizes_[i].load(std::memory_order_relaxed) == bytes) return true;
  }
  return false;
}

Classification Classify(uint64_t bytes, bool in_scope, const RuleMatch& match,
                        const DeclaredSizes& declared) {
  if (in_scope) return {true, abi::Reason::kScope};
  if (match.found && match.kv) return {true, abi::Reason::kFrames};
  if (match.found) return {false, abi::Reason::kExcluded};
  if (declared.Contains(bytes)) return {true, abi::Reason::kDeclaredSize};
  return {false, abi::Reason::kNotKv};
}

}  // namespace fineserve::shim
