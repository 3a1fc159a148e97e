#include "tools/fsctl/engines.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

const char* EngineStateName(abi::EngineState state) {
  return state == abi::EngineState::kAlive ? "alive" : "quarantined";
}

Color StateColor(abi::EngineState state) {
  return state == abi::EngineState::kAlive ? Color::kGreen : Color::kRed;
}

void AddRow(const abi::EngineSnapshot& engine, uint64_t slab_bytes,
            const Moment& now, TextTable* table) {
  table->Add({absl::StrCat(engine.id),
              engine.name,
              {EngineStateName(engine.state), StateColor(engine.state)},
              engine.member_pids.empty()
                  ? "-"
                  : absl::StrJoin(engine.member_pids, ","),
              absl::StrCat(engine.slabs_held),
              Size(engine.slabs_held * slab_bytes),
              Age(now.monotonic_ns, engine.since_ns)});
}

Json EngineJson(const abi::EngineSnapshot& engine, uint64_t slab_bytes,
                const Moment& now) {
  return {{"id", engine.id},
          {"name", engine.name},
          {"state", EngineStateName(engine.state)},
          {"uid", engine.uid},
          {"pids", engine.member_pids},
          {"slabs", engine.slabs_held},
          {"bytes", engine.slabs_held * slab_bytes},
          {"age_seconds", AgeSeconds(now.monotonic_ns, engine.since_ns)}};
}

}  // namespace

std::string EnginesText(const Pool& pool, const Moment& now, bool color) {
  const abi::TableSnapshot& snapshot = pool.table;
  TextTable table({">ID", "NAME", "STATE", "PIDS", ">SLABS", ">SIZE", ">AGE"});
  for (const abi::EngineSnapshot& engine : snapshot.engines) {
    AddRow(engine, snapshot.slab_bytes(), now, &table);
  }
  std::string out = table.Render(color);
  const std::string trouble = DaemonTrouble(pool);
  if (snapshot.torn_engines > 0) {
    absl::StrAppend(&out, snapshot.torn_engines,
                    " more being written, not shown\n");
  }
  if (!trouble.empty()) {
    absl::StrAppend(&out, Paint(color, Color::kRed, trouble), "\n");
  }
  return out;
}

std::string EnginesJson(const Pool& pool, const Moment& now) {
  Json engines = Json::array();
  for (const abi::EngineSnapshot& engine : pool.table.engines) {
    engines.push_back(EngineJson(engine, pool.table.slab_bytes(), now));
  }
  const Json out = {{"daemon_answers", pool.daemon_answers()},
                    {"torn_engines", pool.table.torn_engines},
                    {"engines", engines}};
  return out.dump(2) + "\n";
}

int RunEngines(const Globals& globals) {
  const absl::StatusOr<Pool> pool = ChoosePool(globals.gpu);
  if (!pool.ok()) return Fail(ExitCodeOf(pool.status()), pool.status());
  return Print(globals.json ? EnginesJson(*pool, Now())
                            : EnginesText(*pool, Now(), globals.color));
}

}  // namespace fineserve::fsctl
