#ifndef TOOLS_FSCTL_LOOK_TOP_H_
#define TOOLS_FSCTL_LOOK_TOP_H_

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct TopOptions {
  double interval_s = 1;
  bool once = false;  // print one frame as text
};

// `fsctl top`: the pool as it changes. Returns the exit code.
int RunTop(const Globals& globals, const TopOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LOOK_TOP_H_
