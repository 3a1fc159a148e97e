// Runs a fleet larger than its GPU as real processes: see kQuestion.

#include <stdio.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/report/report.h"
#include "bench/serving/clients.h"
#include "bench/serving/fleet_service.h"
#include "bench/soak/interrupt.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How does a GPU with room for three engines serve twelve of them?

The processes are real: an emulated GPU with a fineserved, fsctl up, tinyserve
engines under the preload, fineserve-proxy, and loadgen's code in this one. The
models are every second one of Prism's trace (arena27), from the most asked one
on; the order, the lengths and the gaps of requests are the trace's. Five ways,
with the same requests:

  all stay        the three most asked models; the others have no engine
  stop and start  as llama-swap: start = "on_request" in the fleet file; the
                  engine that is idle for the longest stops when a start finds
                  no room. Loading takes --load seconds: 10, where vLLM takes
                  30 to 60 (note 0020)
  lru, prism, slack   engines leave for the host and come back, by [scheduler]
                  eviction

On time is a first token within --slo seconds of the request's arrival. A
request states that, so it is refused if its engine cannot be there in time.
One that is refused, or finds no engine, is late. By default it takes 25
minutes.)";

constexpr uint32_t kRoomFor = 3;
constexpr uint32_t kPoolMib = 64, kSlabMib = 2, kWeightMib = 64;
// Memory besides weights and pool: twelve contexts of 4 MiB, and scratch.
constexpr uint32_t kRestMib = 72;
constexpr uint32_t kMemoryMib = kPoolMib + kRoomFor * kWeightMib + kRestMib;
constexpr uint32_t kLongestTokens = 2048;
About TheBench() {
  return {"crowded",
          kQuestion,
          {{"--trace", "FILE", "../shared/data/arena27_prism_vtc_600s.csv.gz",
            "its requests"},
           {"--models", "N", "12", "engines"},
           {"--rate", "X", "1", "times the trace's speed"},
           {"--seconds", "X", "240", "of each run"},
           {"--slo", "X", "2", "s until the first token"},
           {"--way", "NAME", "all", "only this one"},
           {"--load", "X", "10", "s that an engine's start takes"}}};
}

struct Way {
  const char* name;
  const char* engine_keys;  // of each [[engine]]
  const char* eviction = "slack";
  bool all = true;     // else only as many engines as fit
  bool loads = false;  // its starts are measured, and take their time
};
constexpr Way kWays[] = {
    {"all stay", "", "slack", false},
    {"stop and start", "start = \"on_request\"\n", "slack", true, true},
    {"lru", "evict = \"auto\"\n", "lru"},
    {"prism", "evict = \"auto\"\n", "prism"},
    {"slack", "evict = \"auto\"\n"},
};
constexpr size_t kSlack = std::size(kWays) - 1;

struct Load {
  workload::Trace trace;
  double slo_s = 0;
  double load_s = 0;
};

// Takes every second model in order of request counts, and the requests to
// these models.
workload::Trace Thin(const workload::Trace& all, size_t models, double rate,
                     double seconds) {
  std::vector<std::pair<int, uint32_t>> asked(all.models.size());
  for (uint32_t m = 0; m < asked.size(); ++m) asked[m].second = m;
  for (const workload::Arrival& a : all.arrivals) --asked[a.model].first;
  std::sort(asked.begin(), asked.end());
  workload::Trace some;
  std::map<uint32_t, uint32_t> place;
  for (size_t i = 0; i < asked.size() && place.size() < models; i += 2) {
    place[asked[i].second] = static_cast<uint32_t>(place.size());
    some.models.push_back(all.models[asked[i].second]);
  }
  for (workload::Arrival a : all.arrivals) {
    const auto found = place.find(a.model);
    a.at_s /= rate;
    if (found == place.end() || a.at_s > seconds) continue;
    a.model = found->second;
    some.arrivals.push_back(a);
  }
  return some;
}

class Site {
 public:
  Site(const Way& way, const Load& load)
      : way_(way),
        load_(load),
        engines_(way.all ? load.trace.models.size() : kRoomFor),
        service_("crowded", {1, kMemoryMib, kPoolMib, kSlabMib}) {}

  // Starts everything and waits until the engine that starts last answers; if
  // engines start on request, the first one. Returns false, after a message, if
  // that fails.
  bool Start() {
    const size_t last = way_.loads ? 0 : engines_ - 1;
    return service_.Start(Fleet()) &&
           service_.AwaitModels(service_.port(), {load_.trace.models[last]});
  }

  RunOutcome Run() {
    return Send(service_.port(), load_.trace,
                {{load_.slo_s, 0}, /*timeout_s=*/120, /*progress=*/true});
  }

 private:
  stage::FleetText Fleet() const {
    // A GPU's profile, of vLLM with 8B (tools/lab/engines/tinyserve).
    const auto profile = stage::TomlValue::Profile(7600, 16, 64);
    stage::FleetText fleet;
    fleet.Proxy({{"drain", 1}}, service_.port());
    fleet.Table("[scheduler]", {{"eviction", way_.eviction}});
    for (size_t m = 0; m < engines_; ++m) {
      const std::string& name = load_.trace.models[m];
      const uint16_t port = process::FreePort();
      fleet.Model(name, {{"slo_ttft_ms", 1000 * load_.slo_s},
                         {"max_batch", 64},
                         {"profile", profile}});
      fleet.Engine(name, name, port,
                   {{"command",
                     process::Words(absl::StrCat(
                         FleetService::Tinyserve(), " --view --model ", name,
                         " --port ", port, " --max-model-len ", kLongestTokens,
                         " --page 16KiB --weights ", kWeightMib,
                         "MiB --load-s ", way_.loads ? load_.load_s : 0))}});
      fleet.Append(way_.engine_keys);
    }
    return fleet;
  }

  const Way& way_;
  const Load& load_;
  const size_t engines_;
  FleetService service_;
};

struct Cell {
  workload::Summary summary;
  double cpu = 0;
};

bool RunOnce(const Way& way, const Load& load, Cell* cell) {
  Site site(way, load);
  if (!site.Start() || Interrupted()) return false;
  const RunOutcome r = site.Run();
  CatchInterrupts();
  if (r.interrupted || Interrupted()) return false;
  cell->summary = workload::Summarize(r.outcomes, r.seconds);
  cell->cpu = r.cpu;
  const workload::Summary& s = cell->summary;
  fprintf(stderr,
          "%s: %.1f %% of %zu on time, %zu refused, %zu failed, TTFT p99 of "
          "those answered %.2f s, host %.0f %%\n",
          way.name, 100 * s.attainment, s.requests, s.dropped, s.failed,
          s.ttft_s.p99, 100 * r.cpu);
  return true;
}

void Tell(const std::string& of, const Cell& cell, Report* report) {
  const workload::Summary& s = cell.summary;
  report->Figure(of + ": requests", static_cast<double>(s.requests));
  report->Figure(of + ": on time (%)", 100 * s.attainment);
  report->Figure(of + ": TTFT p50 of those answered (s)", s.ttft_s.p50);
  report->Figure(of + ": TTFT p99 of those answered (s)", s.ttft_s.p99);
  report->Figure(of + ": refused", static_cast<double>(s.dropped));
  report->Figure(of + ": failed", static_cast<double>(s.failed));
  report->Figure(of + ": host busy (%)", 100 * cell.cpu);
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const auto trace = workload::ReadTrace(arguments.Text("--trace"));
  if (!trace.ok()) Die(std::string(trace.status().message()));
  const Load load = {
      Thin(*trace, arguments.Count("--models"), arguments.Number("--rate"),
           arguments.Number("--seconds")),
      arguments.Number("--slo"), arguments.Number("--load")};
  if (load.trace.models.size() <= kRoomFor) {
    Die(absl::StrCat("--models: the GPU has room for ", kRoomFor,
                     " engines; give more"));
  }
  CatchInterrupts();
  Report report("crowded");
  std::vector<Cell> cells(std::size(kWays));
  const std::string only = arguments.Text("--way");
  for (size_t way = 0; way < cells.size(); ++way) {
    if (only != "all" && only != kWays[way].name) continue;
    if (!RunOnce(kWays[way], load, &cells[way])) return 1;
    Tell(kWays[way].name, cells[way], &report);
  }
  if (only != "all") return Finish(report, arguments);
  const auto on_time = [&](size_t way) {
    return 100 * cells[way].summary.attainment;
  };
  for (size_t way = 0; way < kSlack; ++way) {
    report.Claim(absl::StrCat("points on time, slack over ", kWays[way].name),
                 on_time(kSlack) - on_time(way), 0, Compare::kAtLeast);
  }
  report.Claim("requests that failed where all models have an engine, slack",
               static_cast<double>(cells[kSlack].summary.failed), 0,
               Compare::kAtMost);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
