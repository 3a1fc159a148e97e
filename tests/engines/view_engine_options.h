#ifndef TESTS_ENGINES_VIEW_ENGINE_OPTIONS_H_
#define TESTS_ENGINES_VIEW_ENGINE_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "shim/fineserve_kv.h"

namespace stock_engine {

struct ViewOptions {
  fs_kv_format format = {};
  uint64_t watermark = 0;
  uint64_t seed = 1;
  int progress = FS_KV_POOL_CONSTRUCTED;
  size_t before_bytes = 0;
  double random_seconds = 0;
  uint32_t most_blocks = 400;
  bool fills_first = false;
  unsigned child_outlives_ms = 0;
};

// Parses the command line; on a mistake prints one line and exits with 2.
ViewOptions ParseViewOptions(int argc, char** argv);

}  // namespace stock_engine

#endif  // TESTS_ENGINES_VIEW_ENGINE_OPTIONS_H_
