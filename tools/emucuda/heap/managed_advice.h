#ifndef TOOLS_EMUCUDA_HEAP_MANAGED_ADVICE_H_
#define TOOLS_EMUCUDA_HEAP_MANAGED_ADVICE_H_

#include <cstdint>
#include <map>

#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/driver_types.h"

namespace fineserve::emucuda {

// Where managed memory was advised to be, as ordinals.
inline constexpr int kOnHost = -1;   // CU_DEVICE_CPU
inline constexpr int kNowhere = -2;  // CU_DEVICE_INVALID

// What a program advised about one managed allocation. The emulator's memory
// never moves, so it only remembers, for the whole allocation at once.
struct Advice {
  bool read_mostly = false;
  int preferred = kNowhere;
  int prefetched = kNowhere;
  uint32_t accessed_by = 0;  // bit per device, the host last
};

// By block id (memory_block.h); ids are not reused. Thread-safe.
class ManagedAdvice {
 public:
  Advice Get(uint64_t block) const;
  void Set(uint64_t block, const Advice& advice);

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, Advice> advice_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_HEAP_MANAGED_ADVICE_H_
