#ifndef TOOLS_FSCTL_GEOMETRY_GEOMETRY_H_
#define TOOLS_FSCTL_GEOMETRY_GEOMETRY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct GeometryOptions {
  std::vector<std::string> formats;
  std::vector<std::string> models;
  // Sizes as the user wrote them; empty: not given.
  std::string pool;
  std::string slab;  // evaluate slabs of this size instead of searching
  std::string granule;
  std::string granularity = "2MiB";
  uint32_t engines = 0;
  uint32_t max_handles = 0;  // 0: slab::kMaxHandles
  bool running = false;      // evaluate the pool of the running daemon
  bool all = false;          // list every cut of the frontier
};

// `fsctl geometry`: shows how well ways to cut a pool into slabs fit the block
// formats. Returns the exit code.
int RunGeometry(const Globals& globals, const GeometryOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_GEOMETRY_GEOMETRY_H_
