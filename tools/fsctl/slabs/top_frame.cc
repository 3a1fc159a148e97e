#include "tools/fsctl/slabs/top_frame.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/abi/slab_state_name.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/daemons/find_engine.h"
#include "tools/fsctl/daemons/slab_states.h"
#include "tools/fsctl/daemons/view_figures.h"
#include "tools/fsctl/models/models_output.h"
#include "tools/fsctl/slabs/engine_names.h"
#include "tools/fsctl/slabs/view_summary.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// Models take at most one of this many rows.
constexpr size_t kModelsPart = 3;
// On a screen with fewer rows, a note is cut instead of taking two lines.
constexpr size_t kRowsForTwoLines = 16;

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

// Returns the longest text that fits behind a heading; if none fits, the
// shortest.
constexpr size_t kHeadingWidth = 8;
std::string Longest(const std::vector<std::string>& texts, size_t width) {
  for (const std::string& text : texts) {
    if (kHeadingWidth + Width(text) <= width) return text;
  }
  return texts.back();
}

Line TitleLine(const Observation& now, size_t width) {
  const abi::TableSnapshot& t = now.pool.table;
  const std::string pool = absl::StrCat(PoolSize(t), " in ", t.slabs.size(),
                                        " slabs of ", Size(t.slab_bytes()));
  const std::string device = " on " + DeviceName(t);
  const std::string gpu = GpuName(t.gpu_uuid);
  // --gpu takes how a UUID begins.
  const std::string begins = gpu.substr(0, gpu.find('-', sizeof("GPU-")));
  return {{"pool    ", Color::kBold},
          Longest({absl::StrCat(pool, device, " (", gpu, ")"),
                   absl::StrCat(pool, device, " (", begins, ")"),
                   absl::StrCat(pool, " on ", begins), pool},
                  width)};
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

Line ChurnLine(const Churn& churn, size_t width) {
  Line line = {{"churn   ", Color::kBold}};
  if (!churn.pool.has_value()) {
    line.push_back("not known yet");
    return line;
  }
  const auto moved = [&](double value) {
    return absl::StrCat(Moved(value, churn.per_second),
                        churn.per_second ? "/s" : "");
  };
  const std::string leases =
      absl::StrCat("leases granted ", moved(churn.pool->leases_granted),
                   ", denied ", moved(churn.pool->leases_denied));
  const std::string returned =
      absl::StrCat(", returned ", moved(churn.pool->returned));
  const std::string slabs = absl::StrCat(
      "; slabs asked back ", moved(churn.pool->asked_back), returned);
  const std::string zeroed = absl::StrCat(
      "; zeroed ", Size(static_cast<uint64_t>(churn.pool->bytes_zeroed)),
      churn.per_second ? "/s" : "");
  line.push_back(Longest(
      {leases + slabs + zeroed, leases + slabs, leases + returned, leases},
      width));
  return line;
}

// Shows the first member and how many more there are, since an engine may have
// 16.
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

// On a narrow terminal, the columns that show what an engine has and lacks are
// dropped last.
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

// Returns the lines above the engines. If there are more than `most`, the least
// important are left out.
std::vector<Line> HeadLines(const Observation& now, const Churn& churn,
                            const std::string& trouble, size_t most,
                            size_t width) {
  const bool daemon_is_well = trouble.empty() && now.pool.daemon_answers();
  struct Ranked {
    int rank;  // the highest goes first
    Line line;
  };
  std::vector<Ranked> head = {
      {1, TitleLine(now, width)},
      {daemon_is_well ? 3 : 0, DaemonLine(now, trouble)},
      {2, CountLine(now.pool.table)},
      {4, ChurnLine(churn, width)},
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

// Adds a note, on two lines if it does not fit on one.
void AddNote(Span heading, const std::string& what,
             const std::string& separator, const std::string& why, size_t width,
             std::vector<Line>* lines) {
  const size_t indent = Width(heading.text);
  lines->push_back({std::move(heading), what});
  if (indent + Width(what) + Width(separator) + Width(why) <= width) {
    lines->back().push_back(separator + why);
  } else {
    lines->push_back({std::string(indent, ' '), why});
  }
}

std::vector<Line> QuarantineLines(const Observation& now, size_t width) {
  std::vector<Line> lines;
  for (const Quarantine& q : Quarantines(now.pool.table)) {
    AddNote({"quarantined ", Color::kRed},
            absl::StrCat(q.slabs, q.slabs == 1 ? " slab" : " slabs",
                         " of engine ", EngineCell(now.pool.table, q.engine),
                         " for ", Age(now.at.monotonic_ns, q.since_ns)),
            ", ", "waiting for " + WaitsFor(now.pool), width, &lines);
  }
  return lines;
}

// Says why blocks are "?" above.
std::vector<Line> UnknownLines(const std::vector<Row>& rows, size_t width) {
  std::vector<Line> lines;
  for (const Row& row : rows) {
    if (row.view == nullptr || row.view->known.ok()) continue;
    AddNote({"unknown     ", Color::kYellow},
            absl::StrCat("blocks of engine ", row.engine->id, " ",
                         row.engine->name),
            ": ", std::string(row.view->known.message()), width, &lines);
  }
  return lines;
}

// Says which engines read another engine's weights.
std::vector<Line> ReaderLines(const wire::ModelsT& models, size_t width) {
  std::vector<Line> lines;
  for (const auto& model : models.models) {
    for (const auto& engine : model->engines) {
      if (engine->dropped_bytes == 0) continue;
      const std::string added = AddedText(*engine);
      AddNote({"weights     ", Color::kYellow}, ReadsText(*engine),
              added.empty() ? "" : ", ", added, width, &lines);
    }
  }
  return lines;
}

std::string TtftText(double ms) {
  if (ms < 0) return "-";
  return ms < 10'000 ? absl::StrFormat("%.0f ms", ms)
                     : absl::StrFormat("%.1f s", ms / 1000);
}

// Returns the number of requests that the model's engines run.
uint64_t RunningOf(const wire::ModelFiguresT& model) {
  uint64_t running = 0;
  for (const auto& engine : model.engines) running += engine->running;
  return running;
}

uint64_t LoadOf(const wire::ModelFiguresT& model) {
  return model.queued + RunningOf(model);
}

std::vector<Span> ModelCells(const wire::ModelFiguresT& m) {
  const uint32_t all = m.recent_on_time + m.recent_late + m.recent_refused;
  const bool slow = m.ttft_p99_ms > m.slo_ttft_ms && m.slo_ttft_ms != 0;
  const auto serving =
      std::count_if(m.engines.begin(), m.engines.end(),
                    [](const auto& engine) { return engine->serves; });
  return {
      m.name,
      absl::StrCat(RunningOf(m)),
      {absl::StrCat(m.queued), m.queued != 0 ? Color::kYellow : Color::kNone},
      TtftText(m.ttft_p50_ms),
      {TtftText(m.ttft_p99_ms), slow ? Color::kYellow : Color::kNone},
      m.slo_ttft_ms == 0 ? "-" : TtftText(m.slo_ttft_ms),
      {all == 0 ? "-" : Percent(static_cast<double>(m.recent_on_time) / all, 0),
       m.burns_s >= 0 ? Color::kRed : Color::kNone},
      absl::StrCat(serving, " of ", m.engines.size())};
}

// On a narrow terminal, queue and TTFT are dropped last. Returns at most `most`
// lines; if not all models fit, those with the most requests.
std::vector<Line> ModelLines(const wire::ModelsT& models, size_t most,
                             size_t width) {
  if (models.models.empty()) return {};
  std::vector<const wire::ModelFiguresT*> shown;
  for (const auto& model : models.models) shown.push_back(model.get());
  const size_t all = shown.size();
  if (all + 1 > most) {
    std::stable_sort(
        shown.begin(), shown.end(),
        [](const auto* a, const auto* b) { return LoadOf(*a) > LoadOf(*b); });
    shown.resize(std::max<size_t>(most, 3) - 2);
  }
  TextTable table({"MODEL", ">RUNNING", ">QUEUED", ">TTFT P50", ">P99", ">SLO",
                   ">ON TIME", ">SERVING"});
  for (const auto* model : shown) table.Add(ModelCells(*model));
  std::vector<Line> lines =
      table.LinesWithin(width, {"SERVING", "ON TIME", "SLO", "TTFT P50"});
  if (shown.size() < all) {
    lines.push_back({{absl::StrCat("... ", all - shown.size(),
                                   " more, with fewer requests; fsctl models "
                                   "shows all"),
                      Color::kDim}});
  }
  lines.push_back({});
  return lines;
}

// Null if it is negative.
Json Known(double value) { return value < 0 ? Json() : Json(value); }

// Returns the engines that read another engine's weights.
Json ReadersJson(const wire::ModelFiguresT& model) {
  Json out = Json::array();
  for (const auto& e : model.engines) {
    if (e->dropped_bytes == 0) continue;
    out.push_back({{"name", e->name},
                   {"dropped_bytes", e->dropped_bytes},
                   {"lender_pid", e->lender_pid},
                   {"dropped_s", Known(e->dropped_s)},
                   {"reads_us", e->reads_us}});
  }
  return out;
}

Json LoadsJson(const wire::ModelsT& models) {
  Json out = Json::array();
  for (const auto& m : models.models) {
    out.push_back({{"name", m->name},
                   {"running", RunningOf(*m)},
                   {"queued", m->queued},
                   {"ttft_p50_ms", Known(m->ttft_p50_ms)},
                   {"ttft_p99_ms", Known(m->ttft_p99_ms)},
                   {"slo_ttft_ms", m->slo_ttft_ms},
                   {"readers", ReadersJson(*m)}});
  }
  return out;
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
                           ScreenSize size, const wire::ModelsT& models) {
  const FiguresByEngine figures = Figures(now);
  const std::vector<Row> rows = Rows(now, figures, churn, order);
  std::vector<Line> engines = EngineLines(rows, churn.per_second, size.columns);
  std::vector<Line> requests =
      ModelLines(models, size.rows / kModelsPart, size.columns);
  const size_t note_width =
      size.rows < kRowsForTwoLines ? SIZE_MAX : size.columns;
  std::vector<Line> notes = QuarantineLines(now, note_width);
  if (!now.former_pools.empty()) {
    notes.push_back({{FormerPoolsText(now.former_pools), Color::kRed}});
  }
  Append(UnknownLines(rows, note_width), &notes);
  Append(ReaderLines(models, note_width), &notes);
  const size_t below =
      requests.size() + engines.size() + (notes.empty() ? 0 : notes.size() + 1);
  std::vector<Line> lines =
      HeadLines(now, churn, trouble, size.rows - std::min(size.rows, below),
                size.columns);
  Append(std::move(requests), &lines);
  Append(std::move(engines), &lines);
  if (notes.empty()) return lines;
  lines.push_back({});
  Append(std::move(notes), &lines);
  return lines;
}

std::vector<Line> TopHelp() {
  const auto of = [](const char* word, const char* means) {
    return Line{{absl::StrFormat("  %-18s", word), Color::kBold}, means};
  };
  return {
      {{"Keys", Color::kBold}},
      of("q, Ctrl-C", "quit"),
      of("s", "another order of engines (slabs, density, churn, …)"),
      of("?", "this help; any key closes it"),
      {},
      {{"Models (of a fleet)", Color::kBold}},
      of("RUNNING", "requests at their engines"),
      of("QUEUED", "requests that wait for admission"),
      of("TTFT P50, P99", "time to the first token in the last minute"),
      of("SLO, ON TIME",
         "the promise, and the part of the minute that kept it"),
      of("SERVING", "engines that serve"),
      {},
      {{"Engines", Color::kBold}},
      of("SLABS, WANTED", "slabs that it holds, and wants to hold"),
      of("FLOOR, CAP", "slabs that it has at all times, and has at most"),
      of("BLOCKS, DENSITY", "blocks in use of those in its slabs"),
      of("LOST", "bytes of free blocks in partly used slabs"),
      of("LEASED, RETURNED", "slabs that came and went"),
      of("ALLOC, FAILED", "blocks taken; times when too few were free"),
      of("MISSED", "times when its free blocks fell below the watermark"),
  };
}

std::string TopJson(const Observation& now, const Churn& churn, TopOrder order,
                    const wire::ModelsT& models) {
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
                    {"models", LoadsJson(models)},
                    {"engines", engines},
                    {"quarantined", QuarantinesJson(now)},
                    {"former_pools", FormerPoolsJson(now.former_pools)}};
  return JsonText(out);
}

}  // namespace fineserve::fsctl
