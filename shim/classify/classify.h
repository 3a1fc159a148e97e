#ifndef SHIM_CLASSIFY_CLASSIFY_H_
#define SHIM_CLASSIFY_CLASSIFY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/messages.h"
#include "shim/classify/rule_matcher.h"

namespace fineserve::shim {

// An allocation of this size or more is "large": it is classified and its stack
// is captured. PyTorch's allocator takes blocks of at least 2 MiB from the
// driver, and so does every KV cache we know; smaller ones are workspaces and
// other buffers.
inline constexpr size_t kLargeBytes = size_t{2} << 20;

// The sizes that the configuration declares to be KV. Safe on any thread: a
// reader races only with the Set that follows a new daemon's welcome, and then
// sees either an old or a new size.
class DeclaredSizes {
 public:
  constexpr DeclaredSizes() = default;
  // Replaces all sizes, and drops those beyond the capacity.
  void Set(const uint64_t* sizes, uint32_t count);
  bool Contains(uint64_t bytes) const;

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<uint64_t> sizes_[abi::kDeclaredSizeCapacity] = {};
};

// Fills `sizes` from a comma-separated list and returns how many there are. It
// skips, with a warning, an item that is not a size, one that is below
// kLargeBytes, and everything beyond the capacity.
uint32_t ParseSizes(const char* list,
                    uint64_t (&sizes)[abi::kDeclaredSizeCapacity]);

struct Classification {
  bool kv;
  abi::Reason reason;
};

// Decides whether an allocation is KV, and for which reason. Pure. An explicit
// scope decides first, then the native frames (`match` is the rules' verdict on
// them), then a declared size. It never guesses: an allocation that matches
// none of the three is left to the driver.
Classification Classify(uint64_t bytes, bool in_scope, const RuleMatch& match,
                        const DeclaredSizes& declared);

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_CLASSIFY_H_
