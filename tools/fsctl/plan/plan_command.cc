#include "tools/fsctl/plan/plan_command.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "daemon/scheduling/global/explain.h"
#include "daemon/scheduling/global/make_plan.h"
#include "tools/fsctl/plan/plan_file.h"
#include "tools/fsctl/plan/plan_output.h"
#include "tools/fsctl/plan/what_if.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

// Beyond so many models times GPUs reasons are looked for one model alone.
constexpr size_t kAllReasons = 100'000;

plan::Options OptionsOf(const PlanOptions& o, const plan::Snapshot& s) {
  plan::Options options;
  options.policy = o.policy;
  options.problem.footprint =
      o.footprint == "released" ? plan::Tier::kReleased : plan::Tier::kPaper;
  options.of_policy.pressure =
      o.kvpr == "v3" ? plan::Pressure::kV3 : plan::Pressure::kV1;
  options.explain_only = o.explain;
  options.reasons =
      !o.explain.empty() || s.models.size() * s.gpus.size() <= kAllReasons;
  return options;
}

int Show(const Globals& globals, const PlanOptions& o, const plan::Snapshot& s,
         const plan::Plan& plan) {
  const int code =
      plan.worth.hosted == s.models.size() ? kExitOk : kExitBadAnswer;
  if (!o.svg_path.empty()) {
    std::ofstream file(o.svg_path);
    file << PlanSvg(s, plan);
    if (!file.flush()) {
      return Fail(kExitUsage, absl::StrCat(o.svg_path,
                                           ": cannot be written; name "
                                           "another file"));
    }
  }
  if (!o.explain.empty()) {
    const auto text = plan::Explain(plan, o.explain);
    if (!text.ok()) return Fail(kExitUsage, text.status());
    Print(*text);
  } else {
    Print(globals.json ? PlanJson(s, plan) : PlanText(s, plan, globals.color));
  }
  return code;
}

int RunPlanFile(const Globals& globals, const PlanOptions& o) {
  const auto snapshot = config::ReadPlanFile(o.file);
  if (!snapshot.ok()) return Fail(kExitUsage, snapshot.status());
  const auto plan = plan::MakePlan(*snapshot, OptionsOf(o, *snapshot));
  if (!plan.ok()) return Fail(kExitUsage, plan.status());
  if (o.what_if.empty()) return Show(globals, o, *snapshot, *plan);

  plan::Snapshot changed = *snapshot;
  for (const std::string& text : o.what_if) {
    const absl::Status applied = ApplyWhatIf(text, &changed);
    if (!applied.ok()) return Fail(kExitUsage, applied);
  }
  const auto after = plan::MakePlan(changed, OptionsOf(o, changed));
  if (!after.ok()) return Fail(kExitUsage, after.status());
  if (!globals.json) Print(WhatIfText(*plan, *after));
  return Show(globals, o, changed, *after);
}

}  // namespace

int RunPlan(const Globals& globals, const PlanOptions& o) {
  const absl::Status fits = CheckLivePlanOptions(o.live, o.file);
  if (!fits.ok()) return Fail(kExitUsage, fits);
  return o.file.empty() ? RunLivePlan(globals, o.live)
                        : RunPlanFile(globals, o);
}

}  // namespace fineserve::fsctl
