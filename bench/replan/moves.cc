#include "bench/replan/moves.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"

namespace fineserve::bench {
namespace {

using nlohmann::json;

json Parse(const std::string& text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Returns a field of an object; empty or 0 if the object has none of that type.
std::string Text(const json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : "";
}
uint64_t Number(const json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned()
             ? found->get<uint64_t>()
             : 0;
}

}  // namespace

uint64_t PlanNumber(const std::string& plan) {
  return Number(Parse(plan), "number");
}

bool IsAtRest(const std::string& plan) {
  const json parsed = Parse(plan);
  if (!parsed.is_object() || !parsed.contains("places")) return false;
  bool any_serves = false;
  for (const json& place : parsed["places"]) {
    const std::string state = Text(place, "state");
    if (state != "off" && state != "serve") return false;
    any_serves |= state == "serve";
  }
  return any_serves;
}

Moves MovesIn(const std::string& history, uint64_t after) {
  Moves moves;
  const json parsed = Parse(history);
  if (!parsed.is_array()) return moves;
  for (const json& plan : parsed) {
    if (Number(plan, "number") <= after) continue;
    // Matches the texts of daemon/scheduling/lead: Describe(Move) and Advance.
    const std::string why = Text(plan, "why");
    moves.begun += absl::StrContains(why, " moves from ");
    moves.undone += absl::StrContains(why, "the move is undone") ||
                    absl::StrContains(why, " is lost, ");
  }
  return moves;
}

}  // namespace fineserve::bench
