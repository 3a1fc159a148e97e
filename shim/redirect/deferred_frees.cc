#include "shim/redirect/deferred_frees.h"

namespace fineserve::shim {

using driver::CUDA_SUCCESS;
using driver::CUevent;

bool DeferredFrees::Add(const Redirection& range, CUevent passed,
                        driver::CUcontext context) {
  MutexLock lock(&mutex_);
  for (Entry& entry : entries_) {
    if (entry.passed != nullptr) continue;
    entry = {range, passed, context};
    count_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

// Only the thread that has claimed an event may query it; otherwise another
// thread could destroy it during the query.
bool DeferredFrees::Claim(size_t place, Entry* out) {
  MutexLock lock(&mutex_);
  Entry& entry = entries_[place];
  if (entry.passed == nullptr || entry.claimed || entry.held) return false;
  entry.claimed = true;
  *out = entry;
  return true;
}

void DeferredFrees::Settle(size_t place, bool taken) {
  MutexLock lock(&mutex_);
  entries_[place].claimed = false;
  if (!taken) return;
  entries_[place] = {};
  count_.fetch_sub(1, std::memory_order_relaxed);
}

void DeferredFrees::SetHeld(driver::CUcontext context, bool held) {
  MutexLock lock(&mutex_);
  for (Entry& entry : entries_) {
    if (entry.passed != nullptr && entry.context == context) entry.held = held;
  }
}

void DeferredFrees::Hold(driver::CUcontext context) {
  if (!empty()) SetHeld(context, true);
}

void DeferredFrees::Unhold(driver::CUcontext context) {
  if (!empty()) SetHeld(context, false);
}

bool DeferredFrees::TakeHeld(driver::CUcontext context, Redirection* out) {
  if (empty()) return false;
  MutexLock lock(&mutex_);
  for (Entry& entry : entries_) {
    if (!entry.held || entry.claimed || entry.context != context) continue;
    *out = entry.range;
    entry = {};
    count_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

bool DeferredFrees::TakePassed(const driver::EntryPoints& entry,
                               Redirection* out) {
  if (empty()) return false;
  for (size_t place = 0; place < kCapacity; ++place) {
    Entry claimed;
    if (!Claim(place, &claimed)) continue;
    const bool passed = entry.cuEventQuery(claimed.passed) == CUDA_SUCCESS;
    if (passed) entry.cuEventDestroy_v2(claimed.passed);
    Settle(place, passed);
    if (!passed) continue;
    *out = claimed.range;
    return true;
  }
  return false;
}

}  // namespace fineserve::shim
