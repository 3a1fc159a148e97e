#ifndef SHIM_HOOKS_GATED_HOOKS_H_
#define SHIM_HOOKS_GATED_HOOKS_H_

#include "shim/weights/gated_lookup.h"

namespace fineserve::shim {

// True if this process may be evicted, so that the calls of gated_calls.h pass
// the gate. Decided once, at the first question.
bool IsEvictable();

// The function that an evictable process gets in the driver's place.
void* GatedAddress(GatedCall call);

// The program gets a function of the driver's own that may touch memory, and is
// later than our list: says so once, and keeps the gate open from now on.
void LetPass(const char* name);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_GATED_HOOKS_H_
