#include "tools/fsctl/slabs/slabs.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "daemon/contract/abi/slab_state_name.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/daemons/slab_states.h"
#include "tools/fsctl/daemons/view_figures.h"
#include "tools/fsctl/slabs/engine_names.h"
#include "tools/fsctl/slabs/view_summary.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using abi::SlabState;
using Json = nlohmann::ordered_json;

// Says how many daemons the pool has had, and whether there will be another.
std::string Succession(const abi::TableSnapshot& table) {
  return absl::StrCat(
      table.daemons > 1
          ? absl::StrCat(", number ", table.daemons, " of this pool")
          : "",
      table.is_kept() ? "; the pool is kept for the next daemon" : "");
}

std::string Title(const Observation& seen) {
  const abi::TableSnapshot& t = seen.pool.table;
  return absl::StrCat(
      "pool      ", PoolSize(t), " on ", DeviceName(t), " (",
      GpuName(t.gpu_uuid), ")\n", "daemon    pid ", t.daemon_pid, ", started ",
      Age(seen.at.realtime_ns, t.started_ns), " ago", Succession(t),
      "\nslabs     ", t.slabs.size(), " of ", Size(t.slab_bytes()), ", each ",
      t.granules_per_slab,
      t.granules_per_slab == 1 ? " granule of " : " granules of ",
      Size(t.granule_bytes), "\n");
}

std::string CountLine(absl::string_view name, uint64_t slabs,
                      uint64_t slab_bytes) {
  std::string line(name);
  line.resize(12, ' ');
  const std::string count = absl::StrCat(slabs);
  line.append(count.size() < 6 ? 6 - count.size() : 0, ' ');
  return absl::StrCat("  ", line, count, "  ", Size(slabs * slab_bytes), "\n");
}

std::string CountLines(const abi::TableSnapshot& table) {
  const StateCounts counts = CountStates(table);
  const uint64_t bytes = table.slab_bytes();
  const uint64_t absent = counts.of(SlabState::kAbsent);
  return absl::StrCat(
      CountLine("free", counts.of(SlabState::kFree), bytes),
      CountLine("leased", counts.leased(), bytes),
      CountLine("zeroing", counts.of(SlabState::kZeroing), bytes),
      CountLine("returning", counts.of(SlabState::kReturning), bytes),
      CountLine("quarantined", counts.of(SlabState::kQuarantined), bytes),
      absent == 0 ? "" : CountLine("absent", absent, bytes));
}

std::string CounterLines(const abi::CounterSnapshot& c) {
  return absl::StrCat(
      "counters  leases granted ", c.leases_granted, ", denied ",
      c.leases_denied, "; zeroed ", c.slabs_zeroed, " slabs (",
      Size(c.bytes_zeroed), "), quarantined ", c.slabs_quarantined,
      "\n          asked back ", c.slabs_asked_back, " slabs, returned ",
      c.slabs_returned, ", added ", c.slabs_added, ", withdrawn ",
      c.slabs_withdrawn, "\n          engines died ", c.engines_died,
      ", messages dropped ", c.messages_dropped, ", connections refused ",
      c.connections_refused, "\n          longest event of the daemon's loop ",
      absl::StrFormat("%.1f", c.loop_longest_turn_us / 1e3), " ms\n");
}

std::string ViewTexts(const abi::TableSnapshot& table,
                      const FiguresByEngine& figures, bool color) {
  std::string text;
  for (const abi::EngineSnapshot& engine : table.engines) {
    const ViewFigures* view = FindView(figures, engine.id);
    if (view == nullptr) continue;
    absl::StrAppend(&text, ViewText(engine, *view, color));
  }
  return text;
}

std::string LeaseCell(const SlabRun& run) {
  if (run.leases == 0) return "-";
  return run.leases == 1 ? absl::StrCat(run.word.lease)
                         : absl::StrCat(run.leases, " leases");
}

std::string SlabTable(const Observation& seen, const std::vector<SlabRun>& runs,
                      bool color) {
  const abi::TableSnapshot& table = seen.pool.table;
  TextTable out({">SLABS", "STATE", "ENGINE", "FORMAT", ">LEASE", ">SIZE",
                 ">USED", ">AGE"});
  for (const SlabRun& run : runs) {
    const std::string range = run.slabs() == 1
                                  ? absl::StrCat(run.first)
                                  : absl::StrCat(run.first, "-", run.last);
    out.Add({range,
             {abi::SlabStateName(run.word.state), StateColor(run.word.state)},
             EngineCell(table, run.word.engine),
             run.format,
             LeaseCell(run),
             Size(run.slabs() * table.slab_bytes()),
             BlocksCell(run.blocks),
             Age(seen.at.monotonic_ns, run.since_ns)});
  }
  return out.Render(color);
}

// Shows the sum of each group of the listing below.
std::string GroupTable(const abi::TableSnapshot& table,
                       const std::vector<SlabRun>& runs, SlabOrder order,
                       bool color) {
  const std::vector<SlabGroup> groups = SlabGroups(table, runs, order);
  if (groups.empty()) return "";
  std::string heading = kSlabOrders[static_cast<size_t>(order)];
  for (char& c : heading) c = static_cast<char>(c - 'a' + 'A');
  TextTable out({heading, ">SLABS", ">SIZE", ">USED"});
  for (const SlabGroup& group : groups) {
    out.Add({group.name, absl::StrCat(group.slabs),
             Size(group.slabs * table.slab_bytes()), BlocksCell(group.blocks)});
  }
  return absl::StrCat(out.Render(color), "\n");
}

Json CountersJson(const abi::CounterSnapshot& c) {
  return {{"leases_granted", c.leases_granted},
          {"leases_denied", c.leases_denied},
          {"slabs_zeroed", c.slabs_zeroed},
          {"bytes_zeroed", c.bytes_zeroed},
          {"slabs_quarantined", c.slabs_quarantined},
          {"slabs_asked_back", c.slabs_asked_back},
          {"slabs_returned", c.slabs_returned},
          {"slabs_added", c.slabs_added},
          {"slabs_withdrawn", c.slabs_withdrawn},
          {"process_lists_useless", c.process_lists_useless},
          {"engines_died", c.engines_died},
          {"messages_dropped", c.messages_dropped},
          {"connections_refused", c.connections_refused},
          {"loop_longest_turn_us", c.loop_longest_turn_us}};
}

Json RunsJson(const Observation& seen, const std::vector<SlabRun>& runs) {
  Json out = Json::array();
  for (const SlabRun& run : runs) {
    Json json = {
        {"first", run.first},
        {"last", run.last},
        {"state", abi::SlabStateName(run.word.state)},
        {"engine", run.word.engine},
        {"engine_name", EngineName(seen.pool.table, run.word.engine)},
        {"format", run.format},
        {"lease", run.word.lease},
        {"leases", run.leases},
        {"age_seconds", AgeSeconds(seen.at.monotonic_ns, run.since_ns)}};
    AddBlocks(run.blocks, &json);
    out.push_back(std::move(json));
  }
  return out;
}

Json GroupsJson(const std::vector<SlabGroup>& groups) {
  Json out = Json::array();
  for (const SlabGroup& group : groups) {
    Json json = {{"name", group.name}, {"slabs", group.slabs}};
    AddBlocks(group.blocks, &json);
    out.push_back(std::move(json));
  }
  return out;
}

Json ViewsJson(const abi::TableSnapshot& table,
               const FiguresByEngine& figures) {
  Json views = Json::array();
  for (const auto& [engine, view] : figures) {
    Json json = {{"engine", engine},
                 {"engine_name", EngineName(table, engine)}};
    json.update(ViewJson(view));
    views.push_back(std::move(json));
  }
  return views;
}

}  // namespace

std::string SlabsText(const Observation& seen, const SlabsOptions& options,
                      bool color) {
  const abi::TableSnapshot& table = seen.pool.table;
  const FiguresByEngine figures = Figures(seen);
  const std::vector<SlabRun> runs =
      SlabRuns(table, figures, !options.all, options.order);
  std::string out = Title(seen);
  if (const std::string trouble = DaemonTrouble(seen.pool); !trouble.empty()) {
    absl::StrAppend(&out, Paint(color, Color::kRed, trouble), "\n");
  }
  if (const std::string text = FormerPoolsText(seen.former_pools);
      !text.empty()) {
    absl::StrAppend(&out, Paint(color, Color::kRed, text), "\n");
  }
  Line bar = BracketedStateBar(table);
  bar.push_back("  ");
  for (Span& span : StateLegend(table)) bar.push_back(std::move(span));
  absl::StrAppend(&out, CountLines(table), CounterLines(table.counters),
                  ViewTexts(table, figures, color), "\n", Render({bar}, color),
                  "\n", GroupTable(table, runs, options.order, color),
                  SlabTable(seen, runs, color));
  return out;
}

std::string SlabsJson(const Observation& seen, const SlabsOptions& options) {
  const abi::TableSnapshot& t = seen.pool.table;
  const FiguresByEngine figures = Figures(seen);
  const std::vector<SlabRun> runs =
      SlabRuns(t, figures, !options.all, options.order);
  const Json out = {
      {"gpu",
       {{"uuid", GpuName(t.gpu_uuid)},
        {"name", t.gpu_name},
        {"emulated", (t.flags & abi::kTableEmulatedDevice) != 0}}},
      {"daemon",
       {{"pid", t.daemon_pid},
        {"answers", seen.pool.daemon_answers()},
        {"read_through_pid", seen.pool.holder_pid},
        {"epoch", Hex(t.epoch)},
        {"number", t.daemons},
        {"pool_is_kept", t.is_kept()},
        {"age_seconds", AgeSeconds(seen.at.realtime_ns, t.started_ns)}}},
      {"pool_bytes", PresentBytes(t)},
      {"most_pool_bytes", t.pool_bytes()},
      {"slab_bytes", t.slab_bytes()},
      {"granule_bytes", t.granule_bytes},
      {"granules_per_slab", t.granules_per_slab},
      {"slab_count", t.slabs.size()},
      {"states", StatesJson(t)},
      {"counters", CountersJson(t.counters)},
      {"views", ViewsJson(t, figures)},
      {"order", kSlabOrders[static_cast<size_t>(options.order)]},
      {"groups", GroupsJson(SlabGroups(t, runs, options.order))},
      {"slabs", RunsJson(seen, runs)},
      {"former_pools", FormerPoolsJson(seen.former_pools)}};
  return JsonText(out);
}

namespace {

// Returns the order with this name, which must be one of kSlabOrders.
SlabOrder OrderNamed(const std::string& name) {
  return static_cast<SlabOrder>(
      std::find(std::begin(kSlabOrders), std::end(kSlabOrders), name) -
      std::begin(kSlabOrders));
}

int RunSlabs(const Globals& globals, const SlabsOptions& options) {
  const absl::StatusOr<Observation> seen = Observe(globals.gpu);
  if (!seen.ok()) return FailWithoutPool(seen.status());
  return Print(globals.json ? SlabsJson(*seen, options)
                            : SlabsText(*seen, options, globals.color));
}

}  // namespace

void AddSlabs(Commands& c) {
  const auto [command, o] =
      c.Add("slabs", "Show which engine holds which slab of the pool",
            "  fsctl slabs\n"
            "  fsctl slabs --all --gpu GPU-4a1f\n"
            "  fsctl slabs --by density        fullest slabs first\n"
            "  fsctl slabs --json | jq .states.free.bytes\n",
            RunSlabs);
  SlabOrder* const order = &o->order;
  command->add_flag("--all", o->all, "Print one line per slab");
  command
      ->add_option_function<std::string>(
          "--by",
          [order](const std::string& name) { *order = OrderNamed(name); },
          "Sort by slab, state, format, engine, age or density "
          "(default: slab)")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kSlabOrders),
                                                     std::end(kSlabOrders))));
}

}  // namespace fineserve::fsctl
