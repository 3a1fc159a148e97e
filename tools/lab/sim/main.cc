// fineserve-sim: simulates a fleet under a load, in virtual time.

#include <stdio.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/variant.h"
#include "daemon/base/cli/command_line.h"
#include "daemon/base/log/log.h"
#include "daemon/fleet/config/fleet.h"
#include "tools/lab/sim/bound/world_bound.h"
#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/sim/fleet/site.h"
#include "tools/lab/sim/fleet/world.h"
#include "tools/lab/sim/report/report.h"
#include "tools/lab/workload/load_flags.h"

namespace fineserve::sim {
namespace {

struct Options {
  workload::LoadFlags load;
  std::string fleet_path, site_path;
  std::string policy;  // empty: the fleet's
  double limit_s = 0;
  bool no_max_tokens = false;
  bool no_bound = false;
  bool frozen = false;
  bool quiet = false;
  std::string json_path, svg_path;
};

constexpr char kFooter[] = R"(
Simulates a fleet under a load with FineServe's own scheduler, pool and share
policy. Load flags mean what they mean for loadgen: the same requests.

Examples:
  fineserve-sim --fleet fleet.toml --site site.toml --seconds 120 \
    --lengths sharegpt.csv.gz --model llama-a=4 --model qwen=1
  fineserve-sim --fleet fleet.toml --trace azure2023_code.csv.gz \
    --map azure-code-2023=llama-a --scale 2 --json run.json --svg run.svg

The site file says what the fleet file does not: pool and slab size, KV bytes a
token, how co-tenants slow each other down, what paths and fills cost. Without
it: 16 GiB in slabs of 32 MiB, time slices, and no time but the engines'.
A fleet with a [planner] plans, and moves engines, as it does while serving; the
site file is then needed for the device's memory and the time that engines take
to start.

Exit codes: 0 simulated, 1 a file could not be used, 2 wrong flag, fleet or
site.)";

// Reads the command line. An int in the result is the exit status: 0 after
// --help, 2 for wrong usage, after one line on standard error that explains it.
absl::variant<Options, int> ParseOptions(int argc, char** argv) {
  Options options;
  CLI::App app("fineserve-sim: a fleet under a load, in virtual time",
               "fineserve-sim");
  app.add_option("--fleet", options.fleet_path,
                 "TOML file with the models and engines (man fineserve-fleet)")
      ->required();
  app.add_option("--site", options.site_path,
                 "TOML file with the GPUs and what they take time for");
  workload::AddLoadFlags(&app, &options.load);
  app.add_option("--policy", options.policy,
                 "fineserve, moore-hodgson or fcfs, instead of the fleet's");
  app.add_option("--limit", options.limit_s,
                 "cut what runs so many seconds after the last arrival; 0: "
                 "nothing is cut")
      ->check(CLI::Range(0.0, 1e9));
  app.add_flag("--no-max-tokens", options.no_max_tokens,
               "clients do not say how long answers may be");
  app.add_flag("--no-bound", options.no_bound,
               "do not compute what no schedule could exceed");
  app.add_flag("--frozen", options.frozen,
               "the planner's first plan stays: no engine moves under load");
  app.add_option("--json", options.json_path, "write the report as JSON");
  app.add_option("--svg", options.svg_path, "plot the requests over time");
  app.add_flag("--quiet", options.quiet, "show no progress");
  app.set_version_flag("--version", "fineserve-sim " FINESERVE_VERSION);
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return cli::EndOf(app, e);
  }
  return options;
}

// Returns 1 for files that cannot be used, and 2 for errors in flags or in the
// contents of files.
int Fail(const absl::Status& s) {
  fprintf(stderr, "fineserve-sim: %s\n", std::string(s.message()).c_str());
  return absl::IsNotFound(s) || absl::IsDataLoss(s) ? 1 : 2;
}

bool Write(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  std::ofstream file(path);
  file << text;
  if (file.flush()) return true;
  fprintf(stderr, "fineserve-sim: cannot write %s\n", path.c_str());
  return false;
}

// Redraws one line on standard error.
void ShowProgress(double now_s, double seconds, uint64_t ended, size_t all) {
  constexpr int kColumns = 24;
  const double part =
      all == 0 ? 1 : static_cast<double>(ended) / static_cast<double>(all);
  const auto filled = static_cast<int>(part * kColumns);
  const std::string bar = std::string(static_cast<size_t>(filled), '=') +
                          (filled < kColumns ? ">" : "");
  fprintf(stderr, "\r\033[K[%-*s] %.0f/%.0f s simulated, %lu/%zu requests",
          kColumns, bar.c_str(), now_s, std::max(now_s, seconds), ended, all);
  fflush(stderr);
}

absl::StatusOr<World> ReadWorld(const Options& options, Site* site) {
  absl::StatusOr<config::Fleet> fleet = config::ReadFleet(options.fleet_path);
  if (!fleet.ok()) return fleet.status();
  if (!options.policy.empty()) fleet->policy = options.policy;
  if (!options.site_path.empty()) {
    absl::StatusOr<Site> read = ReadSite(options.site_path);
    if (!read.ok()) return read.status();
    *site = *std::move(read);
  }
  if (site->source.empty()) {
    site->source = "no provenance given (source = in the site file)";
  }
  absl::StatusOr<World> world = MakeWorld(*fleet, *site);
  if (world.ok() && world->planning) site->source += HandSource(*site);
  return world;
}

int Main(int argc, char** argv) {
  const absl::variant<Options, int> parsed = ParseOptions(argc, argv);
  if (const int* code = absl::get_if<int>(&parsed)) return *code;
  const auto& options = absl::get<Options>(parsed);
  log::SetLevel("error");  // a leader's words are in the report
  Site site;
  const absl::StatusOr<World> world = ReadWorld(options, &site);
  if (!world.ok()) return Fail(world.status());
  const absl::StatusOr<workload::Trace> trace =
      workload::MakeLoad(options.load);
  if (!trace.ok()) return Fail(trace.status());
  const auto model_of = ModelsOf(*world, *trace);
  if (!model_of.ok()) return Fail(model_of.status());

  const bool shows = !options.quiet && isatty(STDERR_FILENO) != 0;
  RunOptions run;
  run.limit_s = options.limit_s;
  run.tells_output = !options.no_max_tokens;
  run.frozen = options.frozen;
  if (shows) {
    run.on_progress = [&](double seconds, uint64_t ended) {
      ShowProgress(seconds, trace->seconds(), ended, trace->arrivals.size());
    };
  }
  const absl::StatusOr<RunResult> result = Run(*world, *trace, *model_of, run);
  if (shows) fprintf(stderr, "\r\033[K");
  if (!result.ok()) return Fail(result.status());

  Report report{&*world,     &*result,          options.load.source(),
                site.source, options.load.seed, absl::nullopt};
  if (!options.no_bound) {
    report.bound = ClairvoyantBound(*world, *trace, *model_of);
  }
  Print(report);
  const bool written =
      Write(options.json_path, ToJson(report)) &&
      (options.svg_path.empty() || Write(options.svg_path, ToSvg(report)));
  return written ? 0 : 1;
}

}  // namespace
}  // namespace fineserve::sim

int main(int argc, char** argv) { return fineserve::sim::Main(argc, argv); }
