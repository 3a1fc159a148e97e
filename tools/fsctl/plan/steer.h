#ifndef TOOLS_FSCTL_PLAN_STEER_H_
#define TOOLS_FSCTL_PLAN_STEER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::fsctl {

// Orders that `fsctl plan` may give the leader, one at a time.
struct SteerOptions {
  bool freeze = false;
  bool thaw = false;
  bool apply = false;
  std::string pin;    // MODEL=GPU; empty: none
  std::string unpin;  // a model; empty: none
};

// The flags that are given, such as "--freeze".
std::vector<std::string> FlagsOf(const SteerOptions& options);

// The message that says it. InvalidArgument, with the fix, if --pin cannot be
// read.
absl::StatusOr<wire::SteerT> SteerOf(const SteerOptions& options);

// The outcome of an order, in one line.
std::string SteeredText(const wire::SteerT& steer);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PLAN_STEER_H_
