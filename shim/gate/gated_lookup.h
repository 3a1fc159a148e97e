#ifndef SHIM_GATE_GATED_LOOKUP_H_
#define SHIM_GATE_GATED_LOOKUP_H_

// Finds the gated function that a program asks for by name. Pure; safe inside
// dlsym.

#include <cstddef>
#include <cstdint>

#include "shim/gate/gated_calls.h"

namespace fineserve::shim {

enum class GatedCall : uint16_t {
#define FINESERVE_GATED(symbol) k_##symbol,
  FINESERVE_GATED_CALLS(FINESERVE_GATED)
#undef FINESERVE_GATED
      kCount,
  kNone = kCount,
};

// Finds the gated function by the name of an exported symbol, as dlsym gets it.
GatedCall GatedForSymbol(const char* symbol);

// True if the name follows the naming pattern of functions that make the device
// touch memory, whether or not the function is listed.
bool IsNamedAsATouch(const char* name);

// True for a symbol that is a later ABI of a gated or hooked function than the
// list contains (kListedCudaVersion), such as cuMemcpyBatchAsync_v9.
bool IsLaterAbi(const char* symbol);

// The length of a symbol without the number of its ABI and its stream's
// variant.
size_t NameLength(const char* symbol);

// Finds the gated function by name, version and flags, as cuGetProcAddress gets
// them: the newest ABI of that name that is not newer than `cuda_version`, in
// its per-thread variant if the flags ask for one and there is one.
GatedCall GatedForRequest(const char* name, int cuda_version, uint64_t flags);

}  // namespace fineserve::shim

#endif  // SHIM_GATE_GATED_LOOKUP_H_
