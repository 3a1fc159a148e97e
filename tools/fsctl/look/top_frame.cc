#include "tools/fsctl/look/top_frame.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/abi/slab_state_name.h"
#include "tools/fsctl/look/view_summary.h"
#include "tools/fsctl/pool/engine_names.h"
#include "tools/fsctl/pool/former_pools.h"
#include "tools/fsctl/pool/slab_states.h"
#include "tools/fsctl/pool/view_figures.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using abi::SlabState;
using Json = nlohmann::ordered_json;

// The figures of one engine.
struct Row {
  const abi::EngineSnapshot* engine;
  const ViewFigures* view;  // null without a view
  EngineChurn churn;
  bool has_whole_slabs;

  bool knows_blocks() const { return view != nullptr && view->known.ok(); }
};

// Value by which a row is sorted.
double KeyOf(const Row& row, TopOrder order) {
  constexpr double kUnknown = -1;
  switch (order) {
    case TopOrder::kSlabs:
      return static_cast<double>(row.engine->slabs_held);
    case TopOrder::kDensity:
      return row.knows_blocks() ? row.view->blocks.density() : kUnknown;
    case TopOrder::kChurn:
      return row.churn.leased.value_or(kUnknown) +
             row.churn.returned.value_or(kUnknown);
    case TopOrder::kMissed:
      return row.knows_blocks()
                 ? static_cast<double>(row.view->scoreboard.failed_allocations)
                 : kUnknown;
    case TopOrder::kName:
      return 0;
  }
  return 0;
}

bool HasWholeSlabs(const abi::TableSnapshot& table, uint32_t engine) {
  return std::any_of(table.slabs.begin(), table.slabs.end(),
                     [&](const abi::SlabSnapshot& slab) {
                       return slab.word.engine == engine &&
                              slab.word.state == SlabState::kFull;
                     });
}

std::vector<Row> Rows(const Observation& now, const FiguresByEngine& figures,
                      const Churn& churn, TopOrder order) {
  std::vector<Row> rows;
  for (const abi::EngineSnapshot& engine : now.pool.table.engines) {
    const auto moved = churn.engines.find(engine.id);
    rows.push_back(
        {&engine, FindView(figures, engine.id),
         moved == churn.engines.end() ? EngineChurn() : moved->second,
         HasWholeSlabs(now.pool.table, engine.id)});
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    if (order == TopOrder::kName) return a.engine->name < b.engine->name;
    return KeyOf(a, order) > KeyOf(b, order);
  });
  return rows;
}

// A rate has one decimal, a total none.
std::string Moved(double value, bool per_second) {
  return per_second ? absl::StrFormat("%.1f", value)
                    : absl::StrFormat("%.0f", value);
}

std::string Moved(const std::optional<double>& value, bool per_second) {
  return value.has_value() ? Moved(*value, per_second) : "?";
}

Line TitleLine(const Observation& now) {
  const abi::TableSnapshot& t = now.pool.table;
  return {{"pool    ", Color::kBold},
          absl::StrCat(
              PoolSize(t), " in ", t.slabs.size(), " slabs of ",
              Size(t.slab_bytes()), " on ", t.gpu_name,
              (t.flags & abi::kTableEmulatedDevice) != 0 ? ", emulated" : "",
              " (", GpuName(t.gpu_uuid), ")")};
}

Line DaemonLine(const Observation& now, const std::string& trouble) {
  const Span heading("daemon  ", Color::kBold);
  const std::string text = trouble.empty() ? DaemonTrouble(now.pool) : trouble;
  if (!text.empty()) return {heading, {text, Color::kRed}};
  return {
      heading,
      absl::StrCat("pid ", now.pool.table.daemon_pid, ", started ",
                   Age(now.at.realtime_ns, now.pool.table.started_ns), " ago")};
}

Line CountLine(const abi::TableSnapshot& table) {
  const StateCounts counts = CountStates(table);
  Line line;
  for (int i = 0; i < abi::kSlabStateCount; ++i) {
    const auto state = static_cast<SlabState>(i);
    if (counts.of(state) == 0) continue;
    line.push_back(line.empty() ? "slabs   " : "  ");
    line.back().color = line.size() == 1 ? Color::kBold : Color::kNone;
    line.push_back({StateMark(state), StateColor(state)});
    line.push_back(
        absl::StrCat(" ", abi::SlabStateName(state), " ", counts.of(state)));
  }
  return line;
}

Line ChurnLine(const Churn& churn) {
  Line line = {{"churn   ", Color::kBold}};
  if (!churn.pool.has_value()) {
    line.push_back("not known yet");
    return line;
  }
  const auto moved = [&](double value) {
    return absl::StrCat(Moved(value, churn.per_second),
                        churn.per_second ? "/s" : "");
  };
  line.push_back(absl::StrCat(
      "leases granted ", moved(churn.pool->leases_granted), ", denied ",
      moved(churn.pool->leases_denied), "; slabs asked back ",
      moved(churn.pool->asked_back), ", returned ", moved(churn.pool->returned),
      "; zeroed ", Size(static_cast<uint64_t>(churn.pool->bytes_zeroed)),
      churn.per_second ? "/s" : ""));
  return line;
}

// An engine may have 16 members: shows the first and how many more there are.
std::string PidsCell(const abi::EngineSnapshot& engine) {
  const std::vector<uint32_t>& pids = engine.member_pids;
  if (pids.empty()) return "-";
  return pids.size() <= 2 ? absl::StrJoin(pids, ",")
                          : absl::StrCat(pids[0], " +", pids.size() - 1);
}

// The columns of a view.
std::vector<Span> ViewCells(const Row& row) {
  if (row.view == nullptr) {
    return {row.has_whole_slabs ? "whole" : "-", "-", "-", "-", "-", "-", "-"};
  }
  const abi::ViewRecord& v = row.view->view;
  std::vector<Span> cells = {FormatName(v), absl::StrCat(v.wanted),
                             absl::StrCat(v.floor), absl::StrCat(v.cap)};
  if (!row.view->known.ok()) {
    cells.insert(cells.end(), {"?", "?", "?"});
    return cells;
  }
  const BlockCount& blocks = row.view->blocks;
  cells.push_back(absl::StrCat(blocks.used, "/", blocks.usable));
  cells.push_back(Percent(blocks.density(), 0));
  cells.push_back(Size(row.view->stranded_bytes()));
  return cells;
}

std::vector<Span> MovedCells(const Row& row, bool per_second) {
  std::vector<Span> cells = {Moved(row.churn.leased, per_second),
                             Moved(row.churn.returned, per_second)};
  if (row.view == nullptr) {
    cells.insert(cells.end(), {"-", "-", "-"});
    return cells;
  }
  cells.push_back(Moved(row.churn.allocated_blocks, per_second));
  if (!row.view->known.ok()) {
    cells.insert(cells.end(), {"?", "?"});
    return cells;
  }
  for (const uint64_t count : {row.view->scoreboard.failed_allocations,
                               row.view->scoreboard.watermark_misses}) {
    cells.push_back(
        {absl::StrCat(count), count > 0 ? Color::kYellow : Color::kNone});
  }
  return cells;
}

// On a narrow terminal what an engine has and what it lacks stays longest.
std::vector<Line> EngineLines(const std::vector<Row>& rows, bool per_second,
                              size_t width) {
  const std::string per = per_second ? "/S" : "";
  TextTable table({"ENGINE", "PIDS", ">SLABS", "FORMAT", ">WANTED", ">FLOOR",
                   ">CAP", ">BLOCKS", ">DENSITY", ">LOST",
                   absl::StrCat(">LEASED", per), absl::StrCat(">RETURNED", per),
                   absl::StrCat(">ALLOC", per), ">FAILED", ">MISSED"});
  for (const Row& row : rows) {
    const abi::EngineSnapshot& engine = *row.engine;
    const bool alive = engine.state == abi::EngineState::kAlive;
    std::vector<Span> cells = {{absl::StrCat(engine.id, " ", engine.name),
                                alive ? Color::kNone : Color::kRed},
                               PidsCell(engine),
                               absl::StrCat(engine.slabs_held)};
    for (Span& cell : ViewCells(row)) cells.push_back(std::move(cell));
    for (Span& cell : MovedCells(row, per_second)) {
      cells.push_back(std::move(cell));
    }
    table.Add(std::move(cells));
  }
  return table.LinesWithin(
      width, {"PIDS", "FLOOR", "WANTED", "CAP", "FORMAT", "LOST", "ALLOC" + per,
              "RETURNED" + per, "LEASED" + per, "FAILED", "DENSITY", "BLOCKS",
              "MISSED", "SLABS"});
}

// The lines above the engines. If there are more than `most`, the least
// important are left out.
std::vector<Line> HeadLines(const Observation& now, const Churn& churn,
                            const std::string& trouble, size_t most) {
  const bool daemon_is_well = trouble.empty() && now.pool.daemon_answers();
  struct Ranked {
    int rank;  // the highest goes first
    Line line;
  };
  std::vector<Ranked> head = {
      {1, TitleLine(now)},
      {daemon_is_well ? 3 : 0, DaemonLine(now, trouble)},
      {2, CountLine(now.pool.table)},
      {4, ChurnLine(churn)},
      {6, BracketedStateBar(now.pool.table)},
      {5, {}}};
  while (head.size() > most) {
    head.erase(std::max_element(
        head.begin(), head.end(),
        [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; }));
  }
  std::vector<Line> lines;
  for (Ranked& ranked : head) lines.push_back(std::move(ranked.line));
  return lines;
}

struct Quarantine {
  uint32_t engine;
  uint64_t slabs;
  uint64_t since_ns;  // of the earliest
};

std::vector<Quarantine> Quarantines(const abi::TableSnapshot& table) {
  std::vector<Quarantine> found;
  for (const abi::SlabSnapshot& slab : table.slabs) {
    if (slab.word.state != SlabState::kQuarantined) continue;
    const auto same = std::find_if(
        found.begin(), found.end(),
        [&](const Quarantine& q) { return q.engine == slab.word.engine; });
    if (same == found.end()) {
      found.push_back({slab.word.engine, 1, slab.since_ns});
    } else {
      ++same->slabs;
      same->since_ns = std::min(same->since_ns, slab.since_ns);
    }
  }
  return found;
}

// The event that ends a quarantine (design note 0000, Memory).
std::string WaitsFor(const Pool& pool) {
  return pool.daemon_answers()
             ? "the driver to stop listing the engine's processes"
             : "a daemon to end it; its daemon does not answer";
}

std::vector<Line> QuarantineLines(const Observation& now) {
  std::vector<Line> lines;
  for (const Quarantine& q : Quarantines(now.pool.table)) {
    lines.push_back(
        {{"quarantined ", Color::kRed},
         absl::StrCat(q.slabs, q.slabs == 1 ? " slab" : " slabs", " of engine ",
                      EngineCell(now.pool.table, q.engine), " for ",
                      Age(now.at.monotonic_ns, q.since_ns), ", waiting for ",
                      WaitsFor(now.pool))});
  }
  return lines;
}

// Says why blocks are "?" above.
std::vector<Line> UnknownLines(const std::vector<Row>& rows) {
  std::vector<Line> lines;
  for (const Row& row : rows) {
    if (row.view == nullptr || row.view->known.ok()) continue;
    lines.push_back(
        {{"unknown     ", Color::kYellow},
         absl::StrCat("blocks of engine ", row.engine->id, " ",
                      row.engine->name, ": ", row.view->known.message())});
  }
  return lines;
}

void Append(std::vector<Line> more, std::vector<Line>* to) {
  std::move(more.begin(), more.end(), std::back_inserter(*to));
}

Json Number(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json();
}

Json EngineJson(const Row& row) {
  const abi::EngineSnapshot& engine = *row.engine;
  return {{"id", engine.id},
          {"name", engine.name},
          {"state", EngineStateName(engine.state)},
          {"pids", engine.member_pids},
          {"slabs", engine.slabs_held},
          {"leased", Number(row.churn.leased)},
          {"returned", Number(row.churn.returned)},
          {"allocated_blocks", Number(row.churn.allocated_blocks)},
          {"view", row.view == nullptr ? Json() : ViewJson(*row.view)}};
}

Json PoolJson(const Churn& churn) {
  if (!churn.pool.has_value()) return nullptr;
  return {{"leases_granted", churn.pool->leases_granted},
          {"leases_denied", churn.pool->leases_denied},
          {"asked_back", churn.pool->asked_back},
          {"returned", churn.pool->returned},
          {"bytes_zeroed", churn.pool->bytes_zeroed}};
}

Json QuarantinesJson(const Observation& now) {
  Json out = Json::array();
  for (const Quarantine& q : Quarantines(now.pool.table)) {
    out.push_back({{"engine", q.engine},
                   {"engine_name", EngineName(now.pool.table, q.engine)},
                   {"slabs", q.slabs},
                   {"age_seconds", AgeSeconds(now.at.monotonic_ns, q.since_ns)},
                   {"waits_for", WaitsFor(now.pool)}});
  }
  return out;
}

}  // namespace

TopOrder Next(TopOrder order) {
  const size_t next = static_cast<size_t>(order) + 1;
  return static_cast<TopOrder>(next % std::size(kTopOrders));
}

std::vector<Line> TopFrame(const Observation& now, const Churn& churn,
                           TopOrder order, const std::string& trouble,
                           ScreenSize size) {
  const FiguresByEngine figures = Figures(now);
  const std::vector<Row> rows = Rows(now, figures, churn, order);
  std::vector<Line> engines = EngineLines(rows, churn.per_second, size.columns);
  std::vector<Line> notes = QuarantineLines(now);
  if (!now.former_pools.empty()) {
    notes.push_back({{FormerPoolsText(now.former_pools), Color::kRed}});
  }
  Append(UnknownLines(rows), &notes);
  const size_t below = engines.size() + (notes.empty() ? 0 : notes.size() + 1);
  std::vector<Line> lines =
      HeadLines(now, churn, trouble, size.rows - std::min(size.rows, below));
  Append(std::move(engines), &lines);
  if (notes.empty()) return lines;
  lines.push_back({});
  Append(std::move(notes), &lines);
  return lines;
}

std::string TopJson(const Observation& now, const Churn& churn,
                    TopOrder order) {
  const abi::TableSnapshot& table = now.pool.table;
  const FiguresByEngine figures = Figures(now);
  Json engines = Json::array();
  for (const Row& row : Rows(now, figures, churn, order)) {
    engines.push_back(EngineJson(row));
  }
  const Json out = {{"daemon_answers", now.pool.daemon_answers()},
                    {"read_through_pid", now.pool.holder_pid},
                    {"pool_bytes", PresentBytes(table)},
                    {"most_pool_bytes", table.pool_bytes()},
                    {"slab_bytes", table.slab_bytes()},
                    {"states", StatesJson(table)},
                    {"per_second", churn.per_second},
                    {"churn", PoolJson(churn)},
                    {"engines", engines},
                    {"quarantined", QuarantinesJson(now)},
                    {"former_pools", FormerPoolsJson(now.former_pools)}};
  return JsonText(out);
}

}  // namespace fineserve::fsctl
