#include <nlohmann/json.hpp>

#include "daemon/contract/abi/printable.h"
#include "tools/fsctl/plan/live_plan_output.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

// A line has a plan, its places, and what is said of each of these.
constexpr int kDepth = 3;

// Makes every text printable that may be in a line of history.
Json CleanJson(const Json& json) {
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    return abi::Printable(text.data(), text.size());
  }
  if (!json.is_structured()) return json;
  Json clean = json.is_array() ? Json::array() : Json::object();
  for (auto it = json.begin(); it != json.end(); ++it) {
    if (json.is_array()) {
      clean.push_back(CleanJson(*it));
    } else {
      clean[abi::Printable(it.key().data(), it.key().size())] = CleanJson(*it);
    }
  }
  return clean;
}

// The plan that a line tells of; what cannot be read becomes a plan with the
// line as its reason.
Json PlanOf(const std::string& line) {
  const auto is_shallow = [](int depth, Json::parse_event_t, Json&) {
    return depth <= kDepth;
  };
  const Json json = Json::parse(line, is_shallow, /*allow_exceptions=*/false);
  if (json.is_object()) return CleanJson(json);
  return {{"why", abi::Printable(line.data(), line.size())}};
}

std::vector<Json> LastPlans(const wire::PlanStateT& leader, uint32_t most) {
  const std::vector<std::string>& lines = leader.history;
  std::vector<Json> plans;
  for (size_t i = lines.size() > most ? lines.size() - most : 0;
       i < lines.size(); ++i) {
    plans.push_back(PlanOf(lines[i]));
  }
  return plans;
}

std::string Cell(const Json& plan, const char* key) {
  const auto found = plan.find(key);
  if (found == plan.end()) return "-";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

}  // namespace

std::string HistoryText(const wire::PlanStateT& leader, uint32_t most,
                        bool color) {
  TextTable table({"TIME", ">PLAN", "WHY"});
  for (const Json& plan : LastPlans(leader, most)) {
    table.Add({Cell(plan, "time"), Cell(plan, "number"), Cell(plan, "why")});
  }
  return table.Render(color);
}

std::string HistoryJson(const wire::PlanStateT& leader, uint32_t most) {
  return JsonText(Json(LastPlans(leader, most)));
}

}  // namespace fineserve::fsctl
