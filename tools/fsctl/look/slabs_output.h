#ifndef TOOLS_FSCTL_LOOK_SLABS_OUTPUT_H_
#define TOOLS_FSCTL_LOOK_SLABS_OUTPUT_H_

#include <string>

#include "tools/fsctl/look/slabs_options.h"
#include "tools/fsctl/pool/observation.h"

namespace fineserve::fsctl {

// Output of `fsctl slabs` for a pool.
std::string SlabsText(const Observation& seen, const SlabsOptions& options,
                      bool color);
std::string SlabsJson(const Observation& seen, const SlabsOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LOOK_SLABS_OUTPUT_H_
