#ifndef TOOLS_FSCTL_LOOK_LOOK_COMMANDS_H_
#define TOOLS_FSCTL_LOOK_LOOK_COMMANDS_H_

#include "tools/fsctl/look/slabs_options.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// All commands return the exit code.

// `fsctl slabs`: shows which engine holds which slab.
int RunSlabs(const Globals& globals, const SlabsOptions& options);

// `fsctl engines`: lists the engines of the pool.
int RunEngines(const Globals& globals);

struct TopOptions {
  double interval_s = 1;
  bool once = false;  // print one frame as text and end
};
// `fsctl top`: shows the pool as it changes.
int RunTop(const Globals& globals, const TopOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LOOK_LOOK_COMMANDS_H_
