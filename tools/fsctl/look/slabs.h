#ifndef TOOLS_FSCTL_LOOK_SLABS_H_
#define TOOLS_FSCTL_LOOK_SLABS_H_

#include "tools/fsctl/pool/slab_order.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct SlabsOptions {
  bool all = false;  // one line per slab
  SlabOrder order = SlabOrder::kSlab;
};

// `fsctl slabs`: who holds which slab. Returns the exit code.
int RunSlabs(const Globals& globals, const SlabsOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LOOK_SLABS_H_
