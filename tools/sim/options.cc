#include "tools/sim/options.h"

#include <CLI/CLI.hpp>

#include "daemon/cli/command_line.h"

namespace fineserve::sim {
namespace {

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

}  // namespace

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

}  // namespace fineserve::sim
