#ifndef SHIM_HOOKS_HOOK_TABLE_H_
#define SHIM_HOOKS_HOOK_TABLE_H_

// The names for which the shim substitutes its own functions. Pure. Only
// resolver_hooks.cc knows the hooks' addresses.

#include <cstdint>

#include "daemon/contract/abi/hooks.h"

namespace fineserve::shim {

using abi::Hook;

// True for the dynamic loader's own functions.
bool IsLoaders(Hook hook);

// The hook for the name of an exported symbol, as dlsym gets it. Most names are
// ruled out by their first two characters.
Hook HookForSymbol(const char* symbol);

// The hook for a name and version, as cuGetProcAddress gets them; kNone unless
// the ABI that the driver would return is the one that the hook implements. A
// driver returns the newest ABI that is not newer than `cuda_version`
// (cuMemAlloc before 3020 had 32-bit sizes). `flags` are the request's: if they
// ask for per-thread streams, the result is the per-thread variant.
Hook HookForRequest(const char* name, int cuda_version, uint64_t flags);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_HOOK_TABLE_H_
