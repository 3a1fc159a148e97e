#ifndef DAEMON_CONTRACT_ABI_SLAB_STATE_NAME_H_
#define DAEMON_CONTRACT_ABI_SLAB_STATE_NAME_H_

#include <cstddef>

#include "daemon/contract/abi/slab_table.h"

namespace fineserve::abi {

// Returns the word for a slab's state in fsctl's output, its JSON and metrics.
constexpr const char* SlabStateName(SlabState state) {
  constexpr const char* kNames[kSlabStateCount] = {
      "free",      "partial",     "full",  "zeroing",
      "returning", "quarantined", "absent"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_SLAB_STATE_NAME_H_
