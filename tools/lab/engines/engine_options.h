#ifndef TOOLS_LAB_ENGINES_ENGINE_OPTIONS_H_
#define TOOLS_LAB_ENGINES_ENGINE_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "tools/lab/engines/kv_memory.h"

namespace stock_engine {

struct Options {
  size_t weight_bytes = 8 << 20;
  size_t kv_bytes = 16 << 20;  // per layer
  size_t workspace_bytes = 4 << 20;
  int layers = 2;
  bool one_kv_allocation = false;  // all layers in one cuMemAlloc
  KvAllocator allocator = KvAllocator::kPlain;
  uint64_t seed = 1;
  uint64_t weight_seed = 0;
  bool freeze = false;
  int rounds = 1;
  int small_allocations = 0;
  bool hold = false;
  int device = 0;
};

// Parses the command line; on a mistake prints one line and exits with 2.
Options ParseOptions(int argc, char** argv);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_ENGINE_OPTIONS_H_
