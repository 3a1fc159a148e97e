#ifndef TOOLS_FSCTL_PLAN_PLAN_OUTPUT_H_
#define TOOLS_FSCTL_PLAN_PLAN_OUTPUT_H_

#include <string>
#include <vector>

#include "daemon/plan/model/snapshot.h"
#include "daemon/plan/plan.h"

namespace fineserve::fsctl {

// What of a GPU is whose. Bytes.
struct GpuUse {
  std::string gpu;
  double capacity = 0;
  struct Resident {
    std::string model;
    double weights = 0, activations = 0, floor = 0;
  };
  std::vector<Resident> residents;

  // What no resident has for sure.
  double Contested() const;
};
std::vector<GpuUse> UseOf(const plan::Snapshot& snapshot,
                          const plan::Plan& plan);

// What `fsctl plan` prints.
std::string PlanText(const plan::Snapshot& snapshot, const plan::Plan& plan,
                     bool color);
std::string PlanJson(const plan::Snapshot& snapshot, const plan::Plan& plan);

// What --what-if changes, in one line.
std::string WhatIfText(const plan::Plan& before, const plan::Plan& after);

// A bar for each GPU: weights, activations and floors of its models, then the
// contested memory. A whole SVG file.
std::string PlanSvg(const plan::Snapshot& snapshot, const plan::Plan& plan);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PLAN_PLAN_OUTPUT_H_
