#ifndef SHIM_HOOKS_GATED_HOOKS_H_
#define SHIM_HOOKS_GATED_HOOKS_H_

#include "shim/gate/gated_lookup.h"

namespace fineserve::shim {

// True if this process may be evicted, so that the calls of gated_calls.h pass
// the gate. Decided once, at the first call.
bool IsEvictable();

// Returns the function that an evictable process gets instead of the driver's.
void* GatedAddress(GatedCall call);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_GATED_HOOKS_H_
