#ifndef SHIM_HOOKS_GATED_HOOKS_H_
#define SHIM_HOOKS_GATED_HOOKS_H_

#include "shim/gate/gated_lookup.h"

namespace fineserve::shim {

// True if this process may be evicted, so that the calls of gated_calls.h pass
// the gate. Decided once, at the first question.
bool IsEvictable();

// The function that an evictable process gets in the driver's place.
void* GatedAddress(GatedCall call);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_GATED_HOOKS_H_
