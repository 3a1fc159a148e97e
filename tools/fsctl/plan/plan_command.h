#ifndef TOOLS_FSCTL_PLAN_PLAN_COMMAND_H_
#define TOOLS_FSCTL_PLAN_PLAN_COMMAND_H_

#include <string>
#include <vector>

#include "tools/fsctl/plan/live_plan.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct PlanOptions {
  LivePlanOptions live;
  // File to plan, to which the options below apply; if empty, the plan in force
  // is shown.
  std::string file;
  std::string policy = "fineserve-opt";
  std::string footprint = "paper";  // or "released"
  std::string kvpr = "v1";          // or "v3"
  std::string explain;              // a model; empty: none
  std::vector<std::string> what_if;
  std::string svg_path;  // empty: none
};

// `fsctl plan`: plans the setup that a file describes; without a file, calls
// RunLivePlan. Returns the exit code: 1 if a model finds no place.
int RunPlan(const Globals& globals, const PlanOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PLAN_PLAN_COMMAND_H_
