#include "tools/fsctl/apply/apply_output.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using ChangeKind = config::SectionChange::Kind;

struct Shown {
  const char* sign;
  const char* word;
  Color color;
};

Shown ShownAs(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::kAdded:
      return {"+", "added", Color::kGreen};
    case ChangeKind::kRemoved:
      return {"-", "removed", Color::kRed};
    case ChangeKind::kChanged:
      break;
  }
  return {"~", "changed", Color::kYellow};
}

std::string OrNone(const std::string& value) {
  return value.empty() ? "(none)" : value;
}

// True if fsctl up starts an engine of this section.
bool IsStarted(const config::SectionDescription* section) {
  if (section == nullptr) return false;
  const auto command = section->find("command");
  return command != section->end() && !command->second.empty();
}

std::string Part(const char* what, const std::vector<std::string>& engines) {
  return engines.empty()
             ? ""
             : absl::StrCat(what, " ", absl::StrJoin(engines, ", "));
}

}  // namespace

std::string ChangesText(const std::vector<config::SectionChange>& changes,
                        bool color) {
  std::string text;
  for (const config::SectionChange& change : changes) {
    const Shown shown = ShownAs(change.kind);
    absl::StrAppend(&text,
                    Paint(color, shown.color,
                          absl::StrCat(shown.sign, " ", change.section)),
                    "\n");
    for (const config::KeyChange& key : change.keys) {
      absl::StrAppend(&text, "    ", key.key, ": ", OrNone(key.before), " → ",
                      OrNone(key.after), "\n");
    }
  }
  return text;
}

nlohmann::ordered_json ChangesJson(
    const std::vector<config::SectionChange>& changes) {
  auto json = nlohmann::ordered_json::array();
  for (const config::SectionChange& change : changes) {
    auto keys = nlohmann::ordered_json::array();
    for (const config::KeyChange& key : change.keys) {
      keys.push_back(
          {{"key", key.key}, {"before", key.before}, {"after", key.after}});
    }
    json.push_back({{"section", change.section},
                    {"change", ShownAs(change.kind).word},
                    {"restarts", config::NeedsRestart(change)},
                    {"keys", std::move(keys)}});
  }
  return json;
}

EngineEffects EffectsOnEngines(const apply::Answer& up,
                               const config::FleetDescription& fleet) {
  EngineEffects effects;
  for (const auto& change : config::Differences(up.fleet, fleet)) {
    const std::string engine = change.Engine();
    if (engine.empty()) continue;
    const bool before = IsStarted(config::EngineIn(up.fleet, engine));
    const bool after = IsStarted(config::EngineIn(fleet, engine));
    if (!before && after) effects.started.push_back(engine);
    if (before && !after) effects.ended.push_back(engine);
    if (before && after && config::NeedsRestart(change)) {
      effects.restarted.push_back(engine);
    }
  }
  return effects;
}

std::string EffectOn(const apply::Answer& process,
                     const config::FleetDescription& fleet) {
  const auto changes = config::Differences(process.fleet, fleet);
  if (changes.empty()) return "has it already";
  if (process.process != "fsctl up") {
    return absl::StrCat("takes ", changes.size(),
                        changes.size() == 1 ? " change" : " changes",
                        " while it serves");
  }
  const EngineEffects engines = EffectsOnEngines(process, fleet);
  std::vector<std::string> parts;
  for (const std::string& part :
       {Part("starts", engines.started),
        Part("drains and restarts", engines.restarted),
        Part("drains and ends", engines.ended)}) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts.empty() ? "leaves its engines as they are"
                       : absl::StrJoin(parts, "; ");
}

}  // namespace fineserve::fsctl
