#include "tools/fsctl/slabs_view.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace fineserve::fsctl {
namespace {

using abi::SlabState;
using Json = nlohmann::ordered_json;

constexpr size_t kBarWidth = 64;

struct StateLook {
  const char* name;
  char mark;
  Color color;
};
// In the order of SlabState.
constexpr StateLook kLooks[abi::kSlabStateCount] = {
    {"free", '.', Color::kGreen},       {"partial", '-', Color::kNone},
    {"full", '#', Color::kNone},        {"zeroing", '0', Color::kYellow},
    {"returning", '<', Color::kYellow}, {"quarantined", '!', Color::kRed},
    {"absent", ' ', Color::kNone},
};

const StateLook& Look(SlabState state) {
  return kLooks[static_cast<int>(state)];
}

using StateCounts = std::array<uint64_t, abi::kSlabStateCount>;

StateCounts CountStates(const abi::TableSnapshot& table) {
  StateCounts counts = {};
  for (const abi::SlabSnapshot& slab : table.slabs) {
    ++counts[static_cast<int>(slab.word.state)];
  }
  return counts;
}

uint64_t Leased(const StateCounts& counts) {
  return counts[static_cast<int>(SlabState::kPartial)] +
         counts[static_cast<int>(SlabState::kFull)];
}

// Slabs [first, last] with one word.
struct Run {
  size_t first;
  size_t last;
  abi::SlabWord word;
  uint64_t since_ns;  // of the latest change
};

bool SameWord(const abi::SlabWord& a, const abi::SlabWord& b) {
  return abi::SlabWord::Pack(a) == abi::SlabWord::Pack(b);
}

std::vector<Run> Runs(const abi::TableSnapshot& table, bool fold) {
  std::vector<Run> runs;
  for (size_t i = 0; i < table.slabs.size(); ++i) {
    const abi::SlabSnapshot& slab = table.slabs[i];
    if (fold && !runs.empty() && SameWord(runs.back().word, slab.word)) {
      runs.back().last = i;
      runs.back().since_ns = std::max(runs.back().since_ns, slab.since_ns);
    } else {
      runs.push_back({i, i, slab.word, slab.since_ns});
    }
  }
  return runs;
}

// "" for an engine that the table does not list (any more).
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

std::string Title(const Pool& pool, const Moment& now) {
  const abi::TableSnapshot& t = pool.table;
  return absl::StrCat(
      "pool      ", Size(t.pool_bytes()), " on ", t.gpu_name, " (",
      GpuName(t.gpu_uuid), ")",
      (t.flags & abi::kTableEmulatedDevice) != 0 ? ", emulated" : "", "\n",
      "daemon    pid ", t.daemon_pid, ", started ",
      Age(now.realtime_ns, t.started_ns), " ago\n", "slabs     ",
      t.slabs.size(), " of ", Size(t.slab_bytes()), ", each ",
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
  const auto of = [&](SlabState s) { return counts[static_cast<int>(s)]; };
  const uint64_t bytes = table.slab_bytes();
  return absl::StrCat(
      CountLine("free", of(SlabState::kFree), bytes),
      CountLine("leased", Leased(counts), bytes),
      CountLine("zeroing", of(SlabState::kZeroing), bytes),
      CountLine("returning", of(SlabState::kReturning), bytes),
      CountLine("quarantined", of(SlabState::kQuarantined), bytes));
}

std::string CounterLines(const abi::CounterSnapshot& c) {
  return absl::StrCat("counters  leases granted ", c.leases_granted,
                      ", denied ", c.leases_denied, "; zeroed ", c.slabs_zeroed,
                      " slabs (", Size(c.bytes_zeroed), "), quarantined ",
                      c.slabs_quarantined, "\n          engines died ",
                      c.engines_died, ", messages dropped ", c.messages_dropped,
                      ", connections refused ", c.connections_refused, "\n");
}

std::string Legend(const abi::TableSnapshot& table) {
  const StateCounts counts = CountStates(table);
  std::string legend;
  for (int i = 0; i < abi::kSlabStateCount; ++i) {
    if (counts[i] == 0) continue;
    absl::StrAppend(&legend, legend.empty() ? "" : "  ",
                    std::string(1, kLooks[i].mark), " ", kLooks[i].name);
  }
  return legend;
}

std::string SlabTable(const abi::TableSnapshot& table, bool fold,
                      const Moment& now, bool color) {
  TextTable out({">SLABS", "STATE", "ENGINE", ">LEASE", ">SIZE", ">AGE"});
  for (const Run& run : Runs(table, fold)) {
    const uint64_t bytes = (run.last - run.first + 1) * table.slab_bytes();
    const std::string range = run.first == run.last
                                  ? absl::StrCat(run.first)
                                  : absl::StrCat(run.first, "-", run.last);
    out.Add({range,
             {Look(run.word.state).name, Look(run.word.state).color},
             EngineCell(table, run.word.engine),
             run.word.lease == 0 ? "-" : absl::StrCat(run.word.lease),
             Size(bytes),
             Age(now.monotonic_ns, run.since_ns)});
  }
  return out.Render(color);
}

Json StatesJson(const abi::TableSnapshot& table) {
  const StateCounts counts = CountStates(table);
  Json states;
  for (int i = 0; i < abi::kSlabStateCount; ++i) {
    states[kLooks[i].name] = {{"slabs", counts[i]},
                              {"bytes", counts[i] * table.slab_bytes()}};
  }
  return states;
}

Json CountersJson(const abi::CounterSnapshot& c) {
  return {{"leases_granted", c.leases_granted},
          {"leases_denied", c.leases_denied},
          {"slabs_zeroed", c.slabs_zeroed},
          {"bytes_zeroed", c.bytes_zeroed},
          {"slabs_quarantined", c.slabs_quarantined},
          {"engines_died", c.engines_died},
          {"messages_dropped", c.messages_dropped},
          {"connections_refused", c.connections_refused}};
}

Json RunsJson(const abi::TableSnapshot& table, bool fold, const Moment& now) {
  Json runs = Json::array();
  for (const Run& run : Runs(table, fold)) {
    runs.push_back(
        {{"first", run.first},
         {"last", run.last},
         {"state", Look(run.word.state).name},
         {"engine", run.word.engine},
         {"engine_name", EngineName(table, run.word.engine)},
         {"lease", run.word.lease},
         {"age_seconds", AgeSeconds(now.monotonic_ns, run.since_ns)}});
  }
  return runs;
}

}  // namespace

const char* StateName(SlabState state) { return Look(state).name; }

std::string StateBar(const abi::TableSnapshot& table, size_t width) {
  const size_t n = table.slabs.size();
  const size_t group = (n + width - 1) / width;
  std::string bar;
  for (size_t first = 0; first < n; first += group) {
    StateCounts counts = {};
    for (size_t i = first; i < std::min(n, first + group); ++i) {
      ++counts[static_cast<int>(table.slabs[i].word.state)];
    }
    auto most = std::max_element(counts.begin(), counts.end());
    constexpr int kQuarantined = static_cast<int>(SlabState::kQuarantined);
    if (counts[kQuarantined] > 0) most = counts.begin() + kQuarantined;
    bar += kLooks[most - counts.begin()].mark;
  }
  return bar;
}

std::string SlabsText(const Pool& pool, bool fold, const Moment& now,
                      bool color) {
  const abi::TableSnapshot& table = pool.table;
  const std::string trouble = DaemonTrouble(pool);
  std::string out = Title(pool, now);
  if (!trouble.empty()) {
    absl::StrAppend(&out, Paint(color, Color::kRed, trouble), "\n");
  }
  absl::StrAppend(&out, CountLines(table), CounterLines(table.counters), "\n[",
                  StateBar(table, kBarWidth), "]  ", Legend(table), "\n\n",
                  SlabTable(table, fold, now, color));
  return out;
}

std::string SlabsJson(const Pool& pool, bool fold, const Moment& now) {
  const abi::TableSnapshot& t = pool.table;
  const Json out = {
      {"gpu",
       {{"uuid", GpuName(t.gpu_uuid)},
        {"name", t.gpu_name},
        {"emulated", (t.flags & abi::kTableEmulatedDevice) != 0}}},
      {"daemon",
       {{"pid", t.daemon_pid},
        {"answers", pool.daemon_answers()},
        {"read_through_pid", pool.holder_pid},
        {"epoch", Hex(t.epoch)},
        {"age_seconds", AgeSeconds(now.realtime_ns, t.started_ns)}}},
      {"pool_bytes", t.pool_bytes()},
      {"slab_bytes", t.slab_bytes()},
      {"granule_bytes", t.granule_bytes},
      {"granules_per_slab", t.granules_per_slab},
      {"slab_count", t.slabs.size()},
      {"states", StatesJson(t)},
      {"counters", CountersJson(t.counters)},
      {"slabs", RunsJson(t, fold, now)}};
  return out.dump(2) + "\n";
}

}  // namespace fineserve::fsctl
