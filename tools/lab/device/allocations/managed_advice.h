#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_MANAGED_ADVICE_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_MANAGED_ADVICE_H_

#include <cstdint>
#include <map>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

// The places, besides device ordinals, that a program can name in its advice
// about managed memory.
inline constexpr int kOnHost = -1;   // CU_DEVICE_CPU
inline constexpr int kNowhere = -2;  // CU_DEVICE_INVALID

// A program's advice about one managed allocation. The emulator's memory never
// moves, so the advice is only remembered, and for the allocation as a whole.
struct Advice {
  bool read_mostly = false;
  int preferred = kNowhere;
  int prefetched = kNowhere;
  uint32_t accessed_by = 0;  // one bit per device; the last is the host
};

// The advice on each block, by block id (memory_block.h). Ids are not reused.
// Thread-safe.
class ManagedAdvice {
 public:
  Advice Get(uint64_t block) const;
  void Set(uint64_t block, const Advice& advice);

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, Advice> advice_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_MANAGED_ADVICE_H_
