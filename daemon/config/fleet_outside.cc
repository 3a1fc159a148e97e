#include "daemon/config/fleet_outside.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/config/address.h"

namespace fineserve::config {
namespace {

// The part of `rest` in front of its path has a port; a colon of an IPv6
// address is in brackets.
bool HasPort(absl::string_view authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  return colon != authority.npos &&
         (bracket == authority.npos || colon > bracket);
}

// "https://api.example.com/v1".
bool ReadUrl(absl::string_view text, OutsideModel* out) {
  absl::string_view rest = text;
  out->tls = absl::ConsumePrefix(&rest, "https://");
  if (!out->tls && !absl::ConsumePrefix(&rest, "http://")) return false;
  const size_t slash = std::min(rest.find('/'), rest.size());
  out->path = std::string(absl::StripSuffix(rest.substr(slash), "/"));
  std::string authority(rest.substr(0, slash));
  if (!HasPort(authority))
    absl::StrAppend(&authority, out->tls ? ":443" : ":80");
  return out->path.find_first_of(" ?#") == out->path.npos &&
         SplitAddress(authority, &out->host, &out->port).ok() && out->port != 0;
}

Setter Url(OutsideModel* out) {
  return [=](const toml::node& node) {
    std::string text;
    if (absl::Status s = Text(&text)(node); !s.ok()) return s;
    if (ReadUrl(text, out)) return absl::OkStatus();
    return WrongType("a URL, like \"https://api.example.com/v1\"");
  };
}

absl::Status Wrong(const FleetModel& model, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("model \"", model.name,
                                                 "\": fallback = \"",
                                                 model.fallback, "\" ", what));
}

absl::Status CheckFallback(const Fleet& fleet, const FleetModel& model) {
  const FleetModel* at = &model;
  for (size_t steps = 0; !at->fallback.empty(); ++steps) {
    if (fleet.Outside(at->fallback) != nullptr) return absl::OkStatus();
    const size_t next = fleet.ModelIndex(at->fallback);
    if (next == fleet.models.size()) {
      return Wrong(*at, "is neither a [[model]] nor an [[outside]]");
    }
    if (steps == fleet.models.size()) return Wrong(model, "leads in a circle");
    at = &fleet.models[next];
  }
  return absl::OkStatus();
}

}  // namespace

Setter Outside(const std::string& path, std::vector<OutsideModel>* outside) {
  return Sections("outside", [=](const toml::node& node) {
    OutsideModel o;
    const absl::Status s = Section(path, {{"name", Text(&o.name)},
                                          {"url", Url(&o)},
                                          {"model", Text(&o.model)},
                                          {"key", Text(&o.key_path)}})(node);
    if (!s.ok()) return s;
    if (o.name.empty() || o.host.empty()) {
      return At(path, node.source(), "an [[outside]] needs name and url");
    }
    if (o.model.empty()) o.model = o.name;
    outside->push_back(std::move(o));
    return absl::OkStatus();
  });
}

absl::Status CheckFallbacks(const Fleet& fleet) {
  for (const OutsideModel& outside : fleet.outside) {
    const bool is_taken = fleet.Outside(outside.name) != &outside ||
                          std::any_of(fleet.models.begin(), fleet.models.end(),
                                      [&](const FleetModel& model) {
                                        return model.HasName(outside.name);
                                      });
    if (!is_taken) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "[[outside]] \"", outside.name, "\": another model has this name"));
  }
  for (const FleetModel& model : fleet.models) {
    const absl::Status s = CheckFallback(fleet, model);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace fineserve::config
