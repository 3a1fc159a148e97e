#include "daemon/proxy/admission/served_models.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fineserve::proxy {
namespace {

// The names that are shown; an engine with many adapters lists more.
constexpr size_t kMostShown = 4;

std::vector<std::string> IdsIn(absl::string_view body) {
  std::vector<std::string> ids;
  const auto json = nlohmann::json::parse(body.begin(), body.end(), nullptr,
                                          /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("data")) return ids;
  for (const auto& model : json["data"]) {
    if (!model.is_object() || !model.contains("id")) continue;
    if (model["id"].is_string()) ids.push_back(model["id"]);
  }
  return ids;
}

// An engine's words may hold anything, and they go to a terminal.
std::string Shown(const std::string& id) {
  return absl::StrCat("\"", absl::CHexEscape(id.substr(0, 100)), "\"");
}

}  // namespace

std::string TroubleOfModels(absl::string_view body, const std::string& model) {
  const std::vector<std::string> ids = IdsIn(body);
  if (ids.empty() || std::count(ids.begin(), ids.end(), model) > 0) return "";
  std::vector<std::string> shown;
  for (const std::string& id : ids) {
    if (shown.size() < kMostShown) shown.push_back(Shown(id));
  }
  return absl::StrCat(
      "it serves ", absl::StrJoin(shown, ", "),
      ids.size() > shown.size() ? " and others" : "", ", not ", Shown(model),
      " as the fleet file says: start it with that name, or correct model");
}

}  // namespace fineserve::proxy
