#include "tools/fsctl/slabs/engine_names.h"

#include "absl/strings/str_cat.h"

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

}  // namespace fineserve::fsctl
