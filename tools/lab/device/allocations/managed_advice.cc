#include "tools/lab/device/allocations/managed_advice.h"

namespace fineserve::emucuda {

Advice ManagedAdvice::Get(uint64_t block) const {
  const MutexLock lock(mutex_);
  const auto found = advice_.find(block);
  return found == advice_.end() ? Advice{} : found->second;
}

void ManagedAdvice::Set(uint64_t block, const Advice& advice) {
  const MutexLock lock(mutex_);
  advice_[block] = advice;
}

}  // namespace fineserve::emucuda
