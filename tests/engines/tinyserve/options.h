#ifndef TESTS_ENGINES_TINYSERVE_OPTIONS_H_
#define TESTS_ENGINES_TINYSERVE_OPTIONS_H_

#include <cstdint>
#include <string>

#include "tests/engines/tinyserve/engine/engine.h"
#include "tests/engines/tinyserve/kv/kv_store.h"

namespace tinyserve {

enum class Mode { kView, kGuarded, kStrict };

struct Options {
  EngineSettings engine;
  KvFormat format;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  bool view = false;
  size_t weights_bytes = 0;
  double load_s = 0;  // that it takes from its memory to its first answer
  Mode mode = Mode::kView;
  // Number of blocks of each plane. 0: with a view as many as the pool has,
  // otherwise enough for eight requests of the longest length.
  uint32_t blocks = 0;
  uint32_t floor_blocks = 0;  // 0: the longest request's
  bool lines = false;         // obeys lines from stdin
  bool logs_requests = false;
};

// Parses the command line; on a mistake prints one line and exits with 2.
Options ParseOptions(int argc, char** argv);

}  // namespace tinyserve

#endif  // TESTS_ENGINES_TINYSERVE_OPTIONS_H_
