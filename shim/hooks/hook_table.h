#ifndef SHIM_HOOKS_HOOK_TABLE_H_
#define SHIM_HOOKS_HOOK_TABLE_H_

// Which names the shim answers with its own functions. Pure: names in, hook
// out; where a hook lies is known to resolver_hooks.cc alone.

#include <cstdint>

#include "daemon/abi/hooks.h"

namespace fineserve::shim {

using abi::Hook;

// True for the dynamic loader's own functions.
bool IsLoaders(Hook hook);

// The hook for an exported symbol's name, as dlsym is asked. Most names fail
// the first two characters and cost no more.
Hook HookForSymbol(const char* symbol);

// The hook for a name and version as cuGetProcAddress is asked: only where the
// ABI that the driver answers with is the one that the hook implements. A
// driver gives the newest ABI not newer than `cuda_version`; cuMemAlloc before
// 3020 had 32-bit sizes. `flags` are the request's: one that prefers
// per-thread streams gets the variant that means them.
Hook HookForRequest(const char* name, int cuda_version, uint64_t flags);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_HOOK_TABLE_H_
