#include "tools/fsctl/pool/find_engine.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/terminal/suggestion.h"

namespace fineserve::fsctl {

std::string EngineName(const abi::TableSnapshot& table, uint32_t id) {
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.id == id) return engine.name;
  }
  return "";
}

std::string EngineCell(const abi::TableSnapshot& table, uint32_t id) {
  if (id == 0) return "-";
  const std::string name = EngineName(table, id);
  return absl::StrCat(id, " ", name.empty() ? "(unknown)" : name);
}

const char* EngineStateName(abi::EngineState state) {
  return state == abi::EngineState::kAlive ? "alive" : "quarantined";
}

Engines LivingEngines(const abi::TableSnapshot& table) {
  Engines living;
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.state == abi::EngineState::kAlive) living.push_back(engine);
  }
  return living;
}

absl::StatusOr<abi::EngineSnapshot> FindEngine(const abi::TableSnapshot& table,
                                               const std::string& engine) {
  Engines named, numbered;
  std::vector<std::string> names;
  for (const abi::EngineSnapshot& e : LivingEngines(table)) {
    names.push_back(e.name);
    if (e.name == engine) named.push_back(e);
    if (absl::StrCat(e.id) == engine) numbered.push_back(e);
  }
  const Engines& found = named.empty() ? numbered : named;
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no engine '", engine, "' lives in the pool",
                     DidYouMean(engine, names), "; see fsctl engines"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "several engines are named ", engine, "; give one's number instead: ",
      absl::StrJoin(found, ", ", [](std::string* out, const auto& e) {
        absl::StrAppend(out, e.id, " of user ", e.uid);
      })));
}

}  // namespace fineserve::fsctl
