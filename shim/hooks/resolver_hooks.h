#ifndef SHIM_HOOKS_RESOLVER_HOOKS_H_
#define SHIM_HOOKS_RESOLVER_HOOKS_H_

#include "shim/hooks/hook_table.h"

namespace fineserve::shim {

// The address of our exported function for a hook; null for kNone.
void* HookAddress(Hook hook);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_RESOLVER_HOOKS_H_
