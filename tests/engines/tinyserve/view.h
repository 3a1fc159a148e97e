#ifndef TESTS_ENGINES_TINYSERVE_VIEW_H_
#define TESTS_ENGINES_TINYSERVE_VIEW_H_

#include <cstdint>

#include "tests/engines/tinyserve/options.h"

namespace tinyserve {

inline constexpr int kExitNoView = 5;

// The part of an engine's plugin that gives the engine a view of FineServe's
// pool (shim/fineserve_kv.h). If that fails, both print the reason in one line
// and exit with kExitNoView.

// Call before the tensors are allocated. Returns the blocks that each needs.
uint32_t RegisterView(const Options& options);

// Call after warm-up. From then on only leased blocks may be used.
void ActivateView();

}  // namespace tinyserve

#endif  // TESTS_ENGINES_TINYSERVE_VIEW_H_
