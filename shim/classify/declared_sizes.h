#ifndef SHIM_CLASSIFY_DECLARED_SIZES_H_
#define SHIM_CLASSIFY_DECLARED_SIZES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/abi/messages.h"

namespace fineserve::shim {

// An allocation from here on is "large": it is classified and its stack
// captured. PyTorch's allocator takes blocks of at least 2 MiB from the driver
// and so does every KV cache we know; what is smaller is context and handles.
inline constexpr size_t kLargeBytes = size_t{2} << 20;

// The sizes that the configuration calls KV. Any thread: readers race only
// with a Set after a new daemon was found, and then see an old or a new size.
class DeclaredSizes {
 public:
  constexpr DeclaredSizes() = default;
  // Replaces all; what exceeds the capacity is dropped.
  void Set(const uint64_t* sizes, uint32_t count);
  bool Contains(uint64_t bytes) const;

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<uint64_t> sizes_[abi::kDeclaredSizeCapacity] = {};
};

// Fills `sizes` from a comma-separated list and returns how many there are.
// An item that is no size, is too small to be looked at (kLargeBytes), or
// comes after the last place is skipped with a warning.
uint32_t ParseSizes(const char* list,
                    uint64_t (&sizes)[abi::kDeclaredSizeCapacity]);

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_DECLARED_SIZES_H_
