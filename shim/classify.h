#ifndef SHIM_CLASSIFY_H_
#define SHIM_CLASSIFY_H_

#include <atomic>
#include <cstdint>

#include "daemon/abi/engine_scoreboard.h"
#include "daemon/abi/messages.h"
#include "shim/frame_rules.h"

namespace fineserve::shim {

// The sizes that the configuration calls KV. Any thread: readers race only
// with a Set after a new daemon was found, and then see an old or a new size.
class DeclaredSizes {
 public:
  constexpr DeclaredSizes() = default;
  // Replaces all; what exceeds the capacity is dropped.
  void Set(const uint64_t* sizes, uint32_t count);
  bool Contains(uint64_t bytes) const;
  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<uint64_t> sizes_[abi::kDeclaredSizeCapacity] = {};
};

struct Classification {
  bool kv;
  abi::Reason reason;
};

// Is an allocation KV, and by what? Pure. In order: an explicit scope, the
// native frames (`match`: what the rules said of them), a declared size.
// Nothing is guessed: an allocation that no rule names stays the driver's.
Classification Classify(uint64_t bytes, bool in_scope, const RuleMatch& match,
                        const DeclaredSizes& declared);

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_H_
