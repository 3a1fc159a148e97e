#include "shim/map/range_table.h"

#include <algorithm>

namespace fineserve::shim {

size_t RangeTable::UpperBound(driver::CUdeviceptr address) const {
  const Redirection* end = ranges_ + count_;
  return std::upper_bound(ranges_, end, address,
                          [](driver::CUdeviceptr a, const Redirection& r) {
                            return a < r.base;
                          }) -
         ranges_;
}

void RangeTable::PublishBounds() {
  if (count_ == 0) {
    low_.store(0, std::memory_order_relaxed);
    high_.store(0, std::memory_order_relaxed);
    return;
  }
  const Redirection& last = ranges_[count_ - 1];
  low_.store(ranges_[0].base, std::memory_order_relaxed);
  high_.store(last.base + last.reserved_bytes, std::memory_order_relaxed);
}

bool RangeTable::HoldsKv() {
  MutexLock lock(&mutex_);
  return std::any_of(ranges_, ranges_ + count_,
                     [](const Redirection& r) { return r.is_kv(); });
}

bool RangeTable::Insert(const Redirection& range) {
  MutexLock lock(&mutex_);
  if (count_ == kCapacity) return false;
  Redirection* at = ranges_ + UpperBound(range.base);
  std::move_backward(at, ranges_ + count_, ranges_ + count_ + 1);
  *at = range;
  ++count_;
  PublishBounds();
  return true;
}

bool RangeTable::Find(driver::CUdeviceptr address, Redirection* out) {
  return FirstOverlap(address, 1, out);
}

bool RangeTable::FirstOverlap(driver::CUdeviceptr address, uint64_t bytes,
                              Redirection* out) {
  MutexLock lock(&mutex_);
  size_t at = UpperBound(address);
  const bool before =
      at > 0 && address - ranges_[at - 1].base < ranges_[at - 1].reserved_bytes;
  if (before) --at;
  if (at == count_ || (!before && ranges_[at].base - address >= bytes)) {
    return false;
  }
  *out = ranges_[at];
  return true;
}

RangeTable::Found RangeTable::Take(driver::CUdeviceptr address,
                                   Redirection* out) {
  MutexLock lock(&mutex_);
  const size_t after = UpperBound(address);
  if (after == 0) return Found::kNothing;
  Redirection* at = ranges_ + after - 1;
  if (address - at->base >= at->reserved_bytes) return Found::kNothing;
  if (address != at->base) return Found::kInside;
  Remove(at, out);
  return Found::kBase;
}

bool RangeTable::TakeFrom(driver::CUcontext context, Redirection* out) {
  MutexLock lock(&mutex_);
  Redirection* const end = ranges_ + count_;
  Redirection* const at = std::find_if(
      ranges_, end, [&](const Redirection& r) { return r.context == context; });
  if (at == end) return false;
  Remove(at, out);
  return true;
}

void RangeTable::Remove(Redirection* at, Redirection* out) {
  *out = *at;
  std::move(at + 1, ranges_ + count_, at);
  --count_;
  PublishBounds();
}

}  // namespace fineserve::shim
