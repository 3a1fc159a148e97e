#ifndef TOOLS_FSCTL_SLABS_VIEW_H_
#define TOOLS_FSCTL_SLABS_VIEW_H_

#include <string>

#include "tools/fsctl/observation.h"
#include "tools/fsctl/slabs.h"

namespace fineserve::fsctl {

// What `fsctl slabs` prints about a pool.
std::string SlabsText(const Observation& seen, const SlabsOptions& options,
                      bool color);
std::string SlabsJson(const Observation& seen, const SlabsOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SLABS_VIEW_H_
