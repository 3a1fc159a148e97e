#ifndef TOOLS_FSCTL_PLAN_LIVE_PLAN_H_
#define TOOLS_FSCTL_PLAN_LIVE_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tools/fsctl/plan/steer.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct LivePlanOptions {
  uint32_t history = 0;  // so many plans; 0: the one in force
  SteerOptions steer;
};

// At most one of them may be given, and none with a file to plan.
// InvalidArgument, with the fix, if not so.
absl::Status CheckLivePlanOptions(const LivePlanOptions& options,
                                  const std::string& file);

// `fsctl plan` without a file: shows the plan in force, its history, or tells
// the leader what is wanted. Returns the exit code: 1 if there is no plan, or
// a daemon says nothing.
int RunLivePlan(const Globals& globals, const LivePlanOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PLAN_LIVE_PLAN_H_
