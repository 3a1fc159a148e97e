#ifndef TOOLS_FSCTL_PLAN_LIVE_PLAN_H_
#define TOOLS_FSCTL_PLAN_LIVE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/contract/wire/message.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// The orders that `fsctl plan` can give the leader, one at a time.
struct SteerOptions {
  bool freeze = false;
  bool thaw = false;
  bool apply = false;
  std::string pin;    // MODEL=GPU; empty: none
  std::string unpin;  // a model; empty: none
};

// Returns the flags that are given, such as "--freeze".
std::vector<std::string> FlagsOf(const SteerOptions& options);

// Returns the message with these orders. InvalidArgument, with the fix, if
// --pin cannot be parsed.
absl::StatusOr<wire::SteerT> SteerOf(const SteerOptions& options);

// Returns the outcome of an order, in one line.
std::string SteeredText(const wire::SteerT& steer);

struct LivePlanOptions {
  uint32_t history = 0;  // number of plans to show; 0: the one in force
  SteerOptions steer;
};

// Checks that at most one of the options is given, and none together with a
// file to plan. Otherwise returns InvalidArgument, with the fix.
absl::Status CheckLivePlanOptions(const LivePlanOptions& options,
                                  const std::string& file);

// `fsctl plan` without a file: shows the plan in force or its history, or gives
// the leader an order. Returns the exit code: 1 if there is no plan, or if a
// daemon does not answer.
int RunLivePlan(const Globals& globals, const LivePlanOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PLAN_LIVE_PLAN_H_
