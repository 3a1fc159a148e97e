#include "tools/fsctl/plan/live_plan_output.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/wire/newest_plan.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

Color StateColor(wire::PlaceState state) {
  switch (state) {
    case wire::PlaceState::kOff:
      return Color::kDim;
    case wire::PlaceState::kServe:
      return Color::kGreen;
    default:
      return Color::kYellow;
  }
}

std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.3g", value) : "-";
}

// Returns what has become of the process of a place that is off; empty if that
// is not known.
std::string RestOf(const std::vector<DaemonPlan>& daemons,
                   const wire::PlannedPlaceT& place) {
  if (place.state != wire::PlaceState::kOff) return "";
  if (place.no_rest) return "ends";
  const bool is_away =
      std::any_of(daemons.begin(), daemons.end(), [&](const DaemonPlan& d) {
        const std::vector<std::string>& away = d.state.away;
        return std::find(away.begin(), away.end(), place.engine) != away.end();
      });
  return is_away ? "rests" : "";
}

std::string PlaceTable(const std::vector<DaemonPlan>& daemons,
                       const wire::PlanT& plan, bool color) {
  TextTable table({"ENGINE", "STATE", ">REQUESTS/S"});
  for (const auto& place : plan.places) {
    const std::string rest = RestOf(daemons, *place);
    table.Add({Clean(place->engine),
               Span(absl::StrCat(wire::PlaceStateName(place->state),
                                 rest.empty() ? "" : ", ", rest),
                    StateColor(place->state)),
               place->state == wire::PlaceState::kServe
                   ? Number(place->target_rate)
                   : "-"});
  }
  return table.Render(color);
}

bool HasAttainment(const wire::ModelRateT& m) {
  return m.observed && m.attainment >= 0 && std::isfinite(m.attainment);
}

std::string ModelTable(const wire::PlanStateT& leader, bool color) {
  TextTable table(
      {"MODEL", ">REQUESTS/S", ">PROMPT", ">ANSWER", ">ATTAINED", "FROM"});
  for (const auto& m : leader.demand) {
    table.Add({Clean(m->model), Number(m->rate),
               absl::StrFormat("%.0f", m->prompt_tokens),
               absl::StrFormat("%.0f", m->output_tokens),
               HasAttainment(*m) ? Percent(m->attainment) : "-",
               m->observed ? Span("observed") : Span("expected", Color::kDim)});
  }
  return table.Render(color);
}

std::string Heading(const DaemonPlan& newest, const DaemonPlan* leader,
                    bool color) {
  std::string text = newest.number() == 0
                         ? "no plan yet"
                         : absl::StrCat("plan ", newest.number());
  if (leader == nullptr) {
    return absl::StrCat(
        text, "; ",
        Paint(color, Color::kYellow,
              "no daemon leads now, another takes over within seconds"),
        "\n");
  }
  absl::StrAppend(&text, ", led by ", Clean(leader->gpu), "\n");
  absl::StrAppend(&text,
                  leader->state.frozen
                      ? Paint(color, Color::kYellow,
                              "frozen: no model moves until fsctl plan --thaw")
                      : "models may move",
                  "\n");
  absl::StrAppend(
      &text, "under way: ",
      leader->state.move.empty() ? "nothing" : Clean(leader->state.move), "\n");
  return text;
}

// "older plan: GPU-a follows 11, GPU-b none"; empty if all have the newest.
std::string OlderPlans(const std::vector<DaemonPlan>& daemons,
                       uint64_t newest) {
  std::vector<std::string> older;
  for (const DaemonPlan& d : daemons) {
    if (!d.trouble.empty() || d.number() == newest) continue;
    older.push_back(
        absl::StrCat(Clean(d.gpu), older.empty() ? " follows " : " ",
                     d.number() == 0 ? "none" : absl::StrCat(d.number())));
  }
  if (older.empty()) return "";
  return absl::StrCat("older plan: ", absl::StrJoin(older, ", "));
}

std::vector<std::string> Troubles(const std::vector<DaemonPlan>& daemons,
                                  const DaemonPlan* leader) {
  std::vector<std::string> troubles;
  for (const DaemonPlan& d : daemons) {
    const std::string trouble = TroubleOf(d);
    if (trouble.empty()) continue;
    troubles.push_back(absl::StrCat(Clean(d.gpu), ": ", trouble));
  }
  if (leader == nullptr) return troubles;
  for (const std::string& trouble : leader->state.troubles) {
    troubles.push_back(Clean(trouble));
  }
  return troubles;
}

std::string PinText(const wire::PlanStateT& leader) {
  if (leader.pins.empty()) return "";
  return absl::StrCat("\npinned: ",
                      absl::StrJoin(leader.pins, ", ",
                                    [](std::string* out, const auto& pin) {
                                      absl::StrAppend(out, Clean(pin->model),
                                                      " on ", Clean(pin->gpu));
                                    }),
                      "\n");
}

Json PlacesJson(const std::vector<DaemonPlan>& daemons,
                const DaemonPlan& newest) {
  Json places = Json::array();
  if (!newest.state.plan) return places;
  for (const auto& place : newest.state.plan->places) {
    const std::string rest = RestOf(daemons, *place);
    places.push_back({{"engine", Clean(place->engine)},
                      {"state", wire::PlaceStateName(place->state)},
                      {"target_rate", place->target_rate},
                      {"process", rest.empty() ? Json() : Json(rest)}});
  }
  return places;
}

Json ModelsJson(const wire::PlanStateT& leader) {
  Json models = Json::array();
  for (const auto& m : leader.demand) {
    models.push_back(
        {{"model", Clean(m->model)},
         {"rate", m->rate},
         {"prompt_tokens", m->prompt_tokens},
         {"output_tokens", m->output_tokens},
         {"attainment", HasAttainment(*m) ? Json(m->attainment) : Json()},
         {"observed", m->observed}});
  }
  return models;
}

Json DaemonsJson(const std::vector<DaemonPlan>& daemons) {
  Json all = Json::array();
  for (const DaemonPlan& d : daemons) {
    Json daemon = {{"gpu", Clean(d.gpu)}};
    if (d.trouble.empty()) {
      daemon["plan"] = d.number() == 0 ? Json() : Json(d.number());
      daemon["leads"] = d.state.leads;
    } else {
      daemon["trouble"] = Clean(d.trouble);
    }
    all.push_back(std::move(daemon));
  }
  return all;
}

// Among the daemons that answered and for which `may_be` is true, returns the
// one with the newest plan.
template <typename MayBe>
const DaemonPlan* Best(const std::vector<DaemonPlan>& daemons,
                       const MayBe& may_be) {
  const DaemonPlan* best = nullptr;
  for (const DaemonPlan& d : daemons) {
    if (!d.trouble.empty() || !may_be(d)) continue;
    if (best == nullptr || d.number() > best->number()) best = &d;
  }
  return best;
}

}  // namespace

const DaemonPlan* NewestOf(const std::vector<DaemonPlan>& daemons) {
  return Best(daemons, [](const DaemonPlan&) { return true; });
}

std::string TroubleOf(const DaemonPlan& daemon) {
  if (!daemon.trouble.empty()) return Clean(daemon.trouble);
  const bool reported = !daemon.state.leads && !daemon.state.troubles.empty();
  return reported ? Clean(daemon.state.troubles.front()) : "";
}

const DaemonPlan* LeaderOf(const std::vector<DaemonPlan>& daemons) {
  return Best(daemons, [](const DaemonPlan& d) { return d.state.leads; });
}

std::string LivePlanText(const std::vector<DaemonPlan>& daemons, bool color) {
  const DaemonPlan& newest = *NewestOf(daemons);
  const DaemonPlan* leader = LeaderOf(daemons);
  std::string text = Heading(newest, leader, color);
  if (newest.state.plan) {
    absl::StrAppend(&text, "\n",
                    PlaceTable(daemons, *newest.state.plan, color));
  }
  if (leader != nullptr) {
    absl::StrAppend(&text, "\n", ModelTable(leader->state, color),
                    PinText(leader->state));
  }
  auto troubles = Troubles(daemons, leader);
  const std::string older = OlderPlans(daemons, newest.number());
  if (!older.empty()) troubles.insert(troubles.begin(), older);
  if (!troubles.empty()) absl::StrAppend(&text, "\n");
  for (const std::string& trouble : troubles) {
    absl::StrAppend(&text, Paint(color, Color::kYellow, trouble), "\n");
  }
  return text;
}

std::string LivePlanJson(const std::vector<DaemonPlan>& daemons) {
  const DaemonPlan& newest = *NewestOf(daemons);
  const DaemonPlan* leader = LeaderOf(daemons);
  const wire::PlanStateT unknown;
  const wire::PlanStateT& said = leader == nullptr ? unknown : leader->state;
  Json pins = Json::array(), troubles = Json::array();
  for (const auto& pin : said.pins) {
    pins.push_back({{"model", Clean(pin->model)}, {"gpu", Clean(pin->gpu)}});
  }
  for (const std::string& trouble : Troubles(daemons, leader)) {
    troubles.push_back(trouble);
  }
  return JsonText(
      {{"number", newest.number() == 0 ? Json() : Json(newest.number())},
       {"leader", leader == nullptr ? Json() : Json(Clean(leader->gpu))},
       {"frozen", leader == nullptr ? Json() : Json(said.frozen)},
       {"move", said.move.empty() ? Json() : Json(Clean(said.move))},
       {"places", PlacesJson(daemons, newest)},
       {"models", ModelsJson(said)},
       {"pins", pins},
       {"troubles", troubles},
       {"daemons", DaemonsJson(daemons)}});
}

namespace {

// The levels of a line: a plan, its places, and the fields of each place.
constexpr int kDepth = 3;

// Makes every text in a line of history printable.
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

// Returns the plan of a line; if the line cannot be parsed, a plan with the
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
