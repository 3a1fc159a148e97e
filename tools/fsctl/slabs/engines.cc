#include "tools/fsctl/slabs/engines.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/daemons/view_figures.h"
#include "tools/fsctl/slabs/engine_names.h"
#include "tools/fsctl/slabs/view_summary.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

// Null: it cannot be evicted.
const EngineMemory* FindMemory(const Observation& seen, uint32_t engine) {
  const auto found = seen.memory.find(engine);
  return found == seen.memory.end() ? nullptr : &found->second;
}

Span StateCell(const abi::EngineSnapshot& engine, const EngineMemory* memory) {
  if (memory != nullptr && memory->evicted_bytes != 0) {
    return {"evicted", Color::kYellow};
  }
  if (engine.view.state == abi::ViewState::kSuspended) {
    return {"asleep", Color::kYellow};
  }
  const bool alive = engine.state == abi::EngineState::kAlive;
  return {EngineStateName(engine.state), alive ? Color::kGreen : Color::kRed};
}

Json MemoryJson(const EngineMemory* memory) {
  if (memory == nullptr) return nullptr;
  return {{"resident_bytes", memory->resident_bytes},
          {"pinned_bytes", memory->pinned_bytes},
          {"evicted_bytes", memory->evicted_bytes},
          {"gate_waits", memory->gate_waits}};
}

std::string ViewCell(const ViewFigures* view) {
  if (view == nullptr) return "-";
  const std::string name = FormatName(view->view);
  return view->view.mode == abi::ViewMode::kView
             ? name
             : absl::StrCat(name, " ", ModeName(view->view.mode));
}

std::string UsedCell(const ViewFigures* view) {
  RunBlocks blocks;
  blocks.in_view = view != nullptr;
  if (view != nullptr && view->known.ok()) blocks.count = view->blocks;
  return BlocksCell(blocks);
}

void AddRow(const abi::EngineSnapshot& engine, const ViewFigures* view,
            const EngineMemory* memory, uint64_t slab_bytes, const Moment& now,
            TextTable* table) {
  table->Add(
      {absl::StrCat(engine.id), engine.name, StateCell(engine, memory),
       engine.member_pids.empty() ? "-"
                                  : absl::StrJoin(engine.member_pids, ","),
       absl::StrCat(engine.slabs_held), Size(engine.slabs_held * slab_bytes),
       Age(now.monotonic_ns, engine.since_ns), ViewCell(view), UsedCell(view)});
}

Json EngineJson(const abi::EngineSnapshot& engine, const ViewFigures* view,
                const EngineMemory* memory, uint64_t slab_bytes,
                const Moment& now) {
  return {{"id", engine.id},
          {"name", engine.name},
          {"state", EngineStateName(engine.state)},
          {"uid", engine.uid},
          {"pids", engine.member_pids},
          {"slabs", engine.slabs_held},
          {"bytes", engine.slabs_held * slab_bytes},
          {"age_seconds", AgeSeconds(now.monotonic_ns, engine.since_ns)},
          {"memory", MemoryJson(memory)},
          {"view", view == nullptr ? Json() : ViewJson(*view)}};
}

}  // namespace

std::string EnginesText(const Observation& seen, bool color) {
  const abi::TableSnapshot& snapshot = seen.pool.table;
  const FiguresByEngine figures = Figures(seen);
  TextTable table({">ID", "NAME", "STATE", "PIDS", ">SLABS", ">SIZE", ">AGE",
                   "VIEW", ">USED"});
  for (const abi::EngineSnapshot& engine : snapshot.engines) {
    AddRow(engine, FindView(figures, engine.id), FindMemory(seen, engine.id),
           snapshot.slab_bytes(), seen.at, &table);
  }
  std::string out = table.Render(color);
  const std::string trouble = DaemonTrouble(seen.pool);
  if (snapshot.torn_engines > 0) {
    absl::StrAppend(&out, snapshot.torn_engines,
                    " more being written, not shown\n");
  }
  if (!trouble.empty()) {
    absl::StrAppend(&out, Paint(color, Color::kRed, trouble), "\n");
  }
  const std::string orphans = FormerPoolsText(seen.former_pools);
  if (!orphans.empty()) {
    absl::StrAppend(&out, Paint(color, Color::kRed, orphans), "\n");
  }
  return out;
}

std::string EnginesJson(const Observation& seen) {
  const FiguresByEngine figures = Figures(seen);
  const abi::TableSnapshot& table = seen.pool.table;
  Json engines = Json::array();
  for (const abi::EngineSnapshot& engine : table.engines) {
    engines.push_back(EngineJson(engine, FindView(figures, engine.id),
                                 FindMemory(seen, engine.id),
                                 table.slab_bytes(), seen.at));
  }
  const Json out = {{"daemon_answers", seen.pool.daemon_answers()},
                    {"torn_engines", table.torn_engines},
                    {"engines", engines},
                    {"former_pools", FormerPoolsJson(seen.former_pools)}};
  return JsonText(out);
}

namespace {

int RunEngines(const Globals& globals) {
  const absl::StatusOr<Observation> seen = Observe(globals.gpu);
  if (!seen.ok()) return FailWithoutPool(seen.status());
  return Print(globals.json ? EnginesJson(*seen)
                            : EnginesText(*seen, globals.color));
}

}  // namespace

void AddEngines(Commands& c) {
  c.Add("engines", "List the engines that share the pool",
        "  fsctl engines\n"
        "  fsctl engines --json | jq '.engines[].pids'\n",
        RunEngines);
}

}  // namespace fineserve::fsctl
