#ifndef KERNELS_DRIVER_ROUNDING_H_
#define KERNELS_DRIVER_ROUNDING_H_

#include <cstdint>

namespace fineserve {

// ⌈value / by⌉; `by` > 0. Cannot overflow.
constexpr uint64_t DivideUp(uint64_t value, uint64_t by) {
  return value / by + (value % by != 0);
}
static_assert(DivideUp(8, 4) == 2 && DivideUp(9, 4) == 3);
static_assert(DivideUp(UINT64_MAX, 2) == 1ull << 63);

// Returns the smallest multiple of `multiple` > 0 that is at least `value`.
constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return DivideUp(value, multiple) * multiple;
}

}  // namespace fineserve

#endif  // KERNELS_DRIVER_ROUNDING_H_
