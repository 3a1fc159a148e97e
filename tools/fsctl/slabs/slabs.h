#ifndef TOOLS_FSCTL_SLABS_SLABS_H_
#define TOOLS_FSCTL_SLABS_SLABS_H_

#include <string>

#include "tools/fsctl/daemons/observation.h"
#include "tools/fsctl/slabs/slab_runs.h"

namespace fineserve::fsctl {

// Output of `fsctl slabs` for a pool.
std::string SlabsText(const Observation& seen, const SlabsOptions& options,
                      bool color);
std::string SlabsJson(const Observation& seen, const SlabsOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SLABS_SLABS_H_
