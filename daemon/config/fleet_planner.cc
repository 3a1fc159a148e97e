#include "daemon/config/fleet_planner.h"

#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/plan/model/policy_names.h"

namespace fineserve::config {
namespace {

constexpr double kHour = 3600;
constexpr double kDay = 24 * kHour;
constexpr double kMostGain = 10;

// Names what the planner needs and the model lacks; empty if nothing.
std::string Lacking(const FleetModel& model) {
  if (!model.measured) return "a profile file";
  if (model.measured->weight_bytes <= 0) {
    return "weight_bytes in its profile file";
  }
  if (model.measured->kv_token_bytes == 0) {
    return "kv_token_bytes in its profile file";
  }
  if (model.measured->points.empty()) {
    return "at least one [[point]] in its profile file";
  }
  if (model.measured->tp != 1) {
    return "tp = 1 in its profile file, since a place is one GPU";
  }
  return "";
}

// Another engine of its model that never moves; null if there is none.
const FleetEngine* FixedSibling(const Fleet& fleet, const FleetEngine& place) {
  for (const FleetEngine& e : fleet.engines) {
    if (e.model == place.model && !e.is_place) return &e;
  }
  return nullptr;
}

}  // namespace

Setter Planner(const std::string& path, PlannerSettings* planner) {
  return [=](const toml::node& node) {
    planner->on = true;
    const absl::Status s = Section(
        path,
        {{"policy", OneOf(&planner->policy, {std::begin(plan::kPolicyNames),
                                             std::end(plan::kPolicyNames)})},
         {"period", AmountIn(&planner->period_s, 1, kHour)},
         {"window", AmountIn(&planner->window_s, 1, kDay)},
         {"least_gain", AmountIn(&planner->least_gain, 0, kMostGain)},
         {"cool_down", AmountIn(&planner->cool_down_s, 0, kDay)},
         {"start", AmountIn(&planner->start_s, 1, kDay)},
         {"drain", AmountIn(&planner->drain_s, 0, kDay)}})(node);
    if (!s.ok() || planner->window_s >= planner->period_s) return s;
    return At(path, node.source(),
              absl::StrCat("[planner]: window is ", planner->window_s,
                           " s, less than period, ", planner->period_s,
                           " s; raise window"));
  };
}

Setter Expected(const std::string& path, FleetModel* model) {
  return [=](const toml::node& node) {
    const absl::Status wrong = WrongType(
        "like { rate = 2.5, prompt_tokens = 242, output_tokens = 327 }");
    if (!node.is_table()) return wrong;
    const absl::Status s = Section(
        path,
        {{"rate", Amount(&model->expected_rate)},
         {"prompt_tokens", Amount(&model->expected_prompt_tokens)},
         {"output_tokens", Amount(&model->expected_output_tokens)}})(node);
    if (!s.ok()) return s;
    const bool whole =
        model->expected_prompt_tokens > 0 && model->expected_output_tokens > 0;
    return whole ? absl::OkStatus() : wrong;
  };
}

absl::Status CheckPlanned(const Fleet& fleet) {
  for (const FleetEngine& engine : fleet.engines) {
    if (!engine.is_place) continue;
    if (!fleet.planner.on) {
      return absl::InvalidArgumentError(
          absl::StrCat("engine \"", engine.name,
                       "\" comes from a list of gpus, of which a planner "
                       "chooses; add [planner], or give gpu instead of gpus"));
    }
    if (const FleetEngine* fixed = FixedSibling(fleet, engine)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "engine \"", fixed->name, "\" of model \"", engine.model,
          "\" has no gpus, but engine \"", engine.name,
          "\" does; a planner moves all engines of a model or none, so give "
          "all of them gpus, or none"));
    }
    const std::string lacking =
        Lacking(fleet.models[fleet.ModelIndex(engine.model)]);
    if (lacking.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "model \"", engine.model, "\": the planner needs ", lacking,
        "; measure a running engine of it with: fsctl profile URL --weights "
        "15GiB --kv-token-bytes 131072 --output FILE, and set profile = "
        "\"FILE\""));
  }
  return absl::OkStatus();
}

}  // namespace fineserve::config
