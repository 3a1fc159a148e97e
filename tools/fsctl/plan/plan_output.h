#ifndef TOOLS_FSCTL_PLAN_PLAN_OUTPUT_H_
#define TOOLS_FSCTL_PLAN_PLAN_OUTPUT_H_

#include <string>
#include <vector>

#include "daemon/scheduling/global/model/snapshot.h"
#include "daemon/scheduling/global/plan.h"

namespace fineserve::fsctl {

// Division of a GPU's memory, in bytes.
struct GpuUse {
  std::string gpu;
  double capacity = 0;
  struct Resident {
    std::string model;
    double weights = 0, activations = 0, floor = 0;
    double context = {};
  };
  std::vector<Resident> residents;
  std::vector<Resident> resting = {};  // contexts alone

  // Returns the memory that is not guaranteed to any resident.
  double Contested() const;
};
std::vector<GpuUse> UseOf(const plan::Snapshot& snapshot,
                          const plan::Plan& plan);

// Output of `fsctl plan`.
std::string PlanText(const plan::Snapshot& snapshot, const plan::Plan& plan,
                     bool color);
std::string PlanJson(const plan::Snapshot& snapshot, const plan::Plan& plan);

// Effect of --what-if, in one line.
std::string WhatIfText(const plan::Plan& before, const plan::Plan& after);

// Returns a complete SVG file with a bar for each GPU: weights, activations and
// floors of its models, then the contested memory.
std::string PlanSvg(const plan::Snapshot& snapshot, const plan::Plan& plan);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PLAN_PLAN_OUTPUT_H_
