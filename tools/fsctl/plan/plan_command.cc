#include "tools/fsctl/plan/plan_command.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/scheduling/global/explain.h"
#include "daemon/scheduling/global/make_plan.h"
#include "daemon/scheduling/global/policy/policy.h"
#include "tools/fsctl/plan/plan_file.h"
#include "tools/fsctl/plan/plan_output.h"
#include "tools/fsctl/plan/what_if.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

// Beyond this number of models times GPUs, reasons are sought for one model
// only.
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

// Adds the options that `fsctl plan` takes without a file.
void AddLivePlan(CLI::App* command, LivePlanOptions* o) {
  const char* kGroup = "The plan in force";
  command
      ->add_option("--history", o->history,
                   "Show the last plans and why they were made (default: 20)")
      ->expected(0, 1)
      ->default_str("20")
      ->check(CLI::Range(1, 100'000))
      ->option_text("[N]")
      ->group(kGroup);
  command->add_flag("--freeze", o->steer.freeze, "Let no model move")
      ->group(kGroup);
  command->add_flag("--thaw", o->steer.thaw, "Let models move again")
      ->group(kGroup);
  command
      ->add_flag("--apply", o->steer.apply,
                 "Make the best plan's moves now, however small their gain")
      ->group(kGroup);
  command
      ->add_option("--pin", o->steer.pin,
                   "Keep a model on a GPU: a UUID or its beginning")
      ->option_text("MODEL=GPU")
      ->group(kGroup);
  command->add_option("--unpin", o->steer.unpin, "Let a model move again")
      ->option_text("MODEL")
      ->group(kGroup);
}

}  // namespace

int RunPlan(const Globals& globals, const PlanOptions& o) {
  const absl::Status fits = CheckLivePlanOptions(o.live, o.file);
  if (!fits.ok()) return Fail(kExitUsage, fits);
  return o.file.empty() ? RunLivePlan(globals, o.live)
                        : RunPlanFile(globals, o);
}

void AddPlan(Commands& c) {
  const auto [command, o] = c.Add(
      "plan",
      "Show and steer which model runs on which GPU, or plan it from a file",
      "  fsctl plan                      the plan in force\n"
      "  fsctl plan --history\n"
      "  fsctl plan --freeze             no model moves until --thaw\n"
      "  fsctl plan --pin chat=GPU-8f0c\n"
      "  fsctl plan cluster.toml\n"
      "  fsctl plan cluster.toml --explain chat\n"
      "  fsctl plan cluster.toml --what-if rate:chat=2x --what-if gpus=-1\n"
      "  fsctl plan cluster.toml --what-if host=512GiB\n"
      "  fsctl plan cluster.toml --policy prism --json\n"
      "  fsctl plan cluster.toml --svg plan.svg\n"
      "The file lists GPUs, profiles and models; man fsctl shows one.\n",
      RunPlan);
  CLI::Option* file =
      command->add_option("FILE", o->file,
                          "What to plan (TOML; default: show the plan in "
                          "force)");
  const char* kGroup = "With FILE";
  const auto of_file = [&](CLI::Option* option) {
    return option->needs(file)->group(kGroup);
  };
  of_file(command->add_option("--policy", o->policy,
                              "Placement policy (default: fineserve-opt)"))
      ->type_name(
          absl::StrCat("TEXT:{", absl::StrJoin(plan::PolicyNames(), ","), "}"));
  of_file(command->add_option("--footprint", o->footprint,
                              "Base footprint of the paper or of the released "
                              "code (default: paper)"))
      ->check(CLI::IsMember({"paper", "released"}));
  of_file(command->add_option("--kvpr", o->kvpr,
                              "Prism's pressure ratio: v1 or v3 (default: v1)"))
      ->check(CLI::IsMember({"v1", "v3"}));
  of_file(command->add_option("--explain", o->explain,
                              "Say why this model is placed where it is"));
  of_file(command->add_option("--what-if", o->what_if,
                              "Change what is planned: rate:MODEL=2x, gpus=-1, "
                              "host=512GiB or add:MODEL; repeatable"))
      ->allow_extra_args(false);
  of_file(command->add_option("--svg", o->svg_path,
                              "Draw the GPUs' memory to a file"));
  AddLivePlan(command, &o->live);
}

}  // namespace fineserve::fsctl
