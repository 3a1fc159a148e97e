#include "tools/fsctl/plan/live_plan.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/message.h"
#include "tools/fsctl/daemons/ask_daemons.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/plan/live_plan_output.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

constexpr std::chrono::seconds kPatience(2);

constexpr char kWrongKind[] =
    "fineserved sent an answer of the wrong kind; see its log";

DaemonPlan PlanOf(const std::string& gpu,
                  absl::StatusOr<wire::MessageT> message) {
  DaemonPlan plan;
  plan.gpu = gpu;
  if (!message.ok()) {
    plan.trouble = std::string(message.status().message());
  } else if (wire::PlanStateT* state = message->body.AsPlanState()) {
    plan.state = std::move(*state);
  } else if (const wire::RefusedT* refused = message->body.AsRefused()) {
    plan.trouble = absl::StrCat("refused: ", refused->why);
  } else {
    plan.trouble = kWrongKind;
  }
  return plan;
}

std::vector<DaemonPlan> AskForPlans(const std::vector<FleetDaemon>& daemons) {
  auto answers =
      AskDaemons(daemons, wire::Encode(0, 0, wire::PlanQueryT()), kPatience);
  std::vector<DaemonPlan> plans;
  for (size_t i = 0; i < daemons.size(); ++i) {
    plans.push_back(PlanOf(daemons[i].gpu, std::move(answers[i])));
  }
  return plans;
}

bool IsSilent(const DaemonPlan& plan) { return !plan.trouble.empty(); }

// Says on stderr why the daemons that answered have neither a plan nor a
// leader.
int FailWithoutPlan(const std::vector<DaemonPlan>& plans) {
  const DaemonPlan* newest = NewestOf(plans);
  for (const DaemonPlan& plan : plans) {
    const std::string trouble = TroubleOf(plan);
    if (trouble.empty() || (newest != nullptr && IsSilent(plan))) continue;
    return Fail(kExitNoDaemon, absl::StrCat(Clean(plan.gpu), ": ", trouble));
  }
  if (newest->number() != 0) {
    return Fail(kExitNoDaemon,
                "none of the daemons asked leads now; another takes over "
                "within seconds, so try again, without --gpu");
  }
  return Fail(kExitBadAnswer,
              "there is no plan: the fleet has no [planner]; write that line "
              "in fineserved's fleet file and send fineserved SIGHUP");
}

int Show(const Globals& globals, const std::vector<DaemonPlan>& plans) {
  const DaemonPlan* newest = NewestOf(plans);
  if (newest == nullptr ||
      (newest->number() == 0 && LeaderOf(plans) == nullptr)) {
    return FailWithoutPlan(plans);
  }
  Print(globals.json ? LivePlanJson(plans)
                     : LivePlanText(plans, globals.color));
  return std::any_of(plans.begin(), plans.end(), IsSilent) ? kExitBadAnswer
                                                           : kExitOk;
}

int Steer(const Globals& globals, const FleetDaemon& leader,
          const wire::SteerT& steer) {
  wire::SteerT sent = steer;
  const auto answers =
      AskDaemons({leader}, wire::Encode(0, 0, std::move(sent)), kPatience);
  const absl::StatusOr<wire::MessageT>& answer = answers[0];
  if (!answer.ok()) return Fail(kExitNoDaemon, answer.status());
  if (const wire::RefusedT* refused = answer->body.AsRefused()) {
    return Fail(kExitUsage, Clean(refused->why));
  }
  if (answer->body.AsDone() == nullptr) return Fail(kExitNoDaemon, kWrongKind);
  return Print(globals.json ? "{\"done\": true}\n" : SteeredText(steer));
}

}  // namespace

absl::Status CheckLivePlanOptions(const LivePlanOptions& options,
                                  const std::string& file) {
  std::vector<std::string> flags = FlagsOf(options.steer);
  if (options.history > 0) flags.push_back("--history");
  if (flags.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags[0], " and ", flags[1],
                     " do not go together; give one after the other"));
  }
  if (!flags.empty() && !file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags[0], " is about the plan in force, not ", file,
                     "; leave the file out: fsctl plan ", flags[0], " ..."));
  }
  return absl::OkStatus();
}

int RunLivePlan(const Globals& globals, const LivePlanOptions& options) {
  const absl::StatusOr<wire::SteerT> steer = SteerOf(options.steer);
  if (!steer.ok()) return Fail(kExitUsage, steer.status());
  const auto daemons = FindFleetDaemons(globals.gpu);
  if (!daemons.ok()) return FailWithoutPool(daemons.status());
  const std::vector<DaemonPlan> plans = AskForPlans(*daemons);
  const bool steers = !FlagsOf(options.steer).empty();
  if (!steers && options.history == 0) return Show(globals, plans);

  const DaemonPlan* leader = LeaderOf(plans);
  if (leader == nullptr) return FailWithoutPlan(plans);
  if (steers) {
    const auto i = static_cast<size_t>(leader - plans.data());
    return Steer(globals, (*daemons)[i], *steer);
  }
  return Print(globals.json ? HistoryJson(leader->state, options.history)
                            : HistoryText(leader->state, options.history,
                                          globals.color));
}

std::vector<std::string> FlagsOf(const SteerOptions& options) {
  std::vector<std::string> flags;
  if (options.freeze) flags.push_back("--freeze");
  if (options.thaw) flags.push_back("--thaw");
  if (options.apply) flags.push_back("--apply");
  if (!options.pin.empty()) flags.push_back("--pin");
  if (!options.unpin.empty()) flags.push_back("--unpin");
  return flags;
}

absl::StatusOr<wire::SteerT> SteerOf(const SteerOptions& options) {
  wire::SteerT steer;
  steer.freeze = options.freeze;
  steer.thaw = options.thaw;
  steer.apply = options.apply;
  steer.unpin = options.unpin;
  if (options.pin.empty()) return steer;
  // Splits at the last "=", since a model's name may contain one and a GPU's
  // does not.
  const size_t sign = options.pin.rfind('=');
  if (sign == std::string::npos || sign == 0 ||
      sign + 1 == options.pin.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pin ", options.pin,
                     ": write MODEL=GPU, such as --pin chat=GPU-8f0c3f1e"));
  }
  steer.pin = options.pin.substr(0, sign);
  steer.gpu = options.pin.substr(sign + 1);
  return steer;
}

std::string SteeredText(const wire::SteerT& steer) {
  if (steer.freeze) return "frozen: no model moves until fsctl plan --thaw\n";
  if (steer.thaw) return "no longer frozen: models may move\n";
  if (steer.apply) {
    return "the leader makes the best plan's moves, one at a time; watch them "
           "with fsctl plan\n";
  }
  if (!steer.pin.empty()) {
    return absl::StrCat(steer.pin, ": stays on ", steer.gpu,
                        " until fsctl plan --unpin ", steer.pin, "\n");
  }
  return absl::StrCat(steer.unpin, ": no longer pinned, may move\n");
}

}  // namespace fineserve::fsctl
