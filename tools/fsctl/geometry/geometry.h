#ifndef TOOLS_FSCTL_GEOMETRY_GEOMETRY_H_
#define TOOLS_FSCTL_GEOMETRY_GEOMETRY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/slab/geometry_search.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct GeometryOptions {
  std::vector<std::string> formats;
  std::vector<std::string> models;
  std::string pool;  // bytes, as all sizes here
  std::string slab;  // judge this cut instead of searching
  std::string granule;
  std::string granularity = "2MiB";
  uint32_t engines = 0;
  uint32_t max_handles = slab::kMaxHandles;
  bool running = false;  // judge the running daemon's pool
  bool all = false;      // every cut of the frontier
};

// Prints how formats cut a pool into slabs: what is wasted, how many handles.
int RunGeometry(const Globals& globals, const GeometryOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_GEOMETRY_GEOMETRY_H_
