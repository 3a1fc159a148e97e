#ifndef TOOLS_FSCTL_PLAN_WHAT_IF_H_
#define TOOLS_FSCTL_PLAN_WHAT_IF_H_

#include <string>

#include "absl/status/status.h"
#include "daemon/scheduling/global/model/snapshot.h"

namespace fineserve::fsctl {

// Changes the input of the plan:
//   rate:MODEL=2x   its rate times 2; rate:MODEL=3.5 is 3.5 requests/s
//   gpus=-1         without the last GPU by name; gpus=+2: two more like it
//   host=512GiB     each node's host memory
//   add:MODEL       one more model like it, MODEL-more
// InvalidArgument, in one line, for anything else.
absl::Status ApplyWhatIf(const std::string& text, plan::Snapshot* snapshot);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PLAN_WHAT_IF_H_
