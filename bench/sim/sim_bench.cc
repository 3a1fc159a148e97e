// The speed and size of the simulator: see kQuestion.

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "bench/micro/arguments.h"
#include "bench/micro/report.h"
#include "bench/sim/fleet_load.h"
#include "tools/sim/fleet/run.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How many requests does the simulator get through, and what does it need?

Models of 8B, FP16 and FP8 by turns, on GPUs with pools of 48 GiB that their
engines share; rates are Zipf's over models and ServeGen's over time, lengths
ShareGPT's (first turn; prompts up to 3,000 tokens, answers up to 1,000). Models
with more than 6 requests/s have replicas, so nearly all GPUs hang together and
are simulated in step. By default 64 GPUs x 160 models x 20 minutes; with
--gpus 4096 --models 10000 --seconds 3600 the largest that is asked of it.
Requests a minute are those of one core: by CPU time, of the simulation alone.)";

double Gibibytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

About TheBench() {
  return {"sim",
          kQuestion,
          {{"--data", "DIR", "../shared/data", "folder of lengths and rates"},
           {"--gpus", "N", "64", "GPUs"},
           {"--models", "N", "160", "models"},
           {"--seconds", "N", "1200", "length of the load"},
           {"--rate", "N", "1", "requests/s of a GPU, on average"}}};
}

void ShowProgress(double now_s, double seconds) {
  if (isatty(STDERR_FILENO) == 0) return;
  fprintf(stderr, "\r\033[K%.0f/%.0f s simulated, %.0f s of CPU", now_s,
          seconds, CpuSeconds());
  if (now_s >= seconds) fprintf(stderr, "\n");
}

int Fail(const absl::Status& s) {
  fprintf(stderr, "sim: %s; set the folder with --data\n",
          std::string(s.message()).c_str());
  return 1;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const std::string data = arguments.Text("--data");
  const auto lengths = workload::ReadLengths(
      data + "/lengths_sharegpt_firstturn_llama2tok_even.csv.gz");
  if (!lengths.ok()) return Fail(lengths.status());
  const auto shapes =
      workload::ReadRateShapes(data + "/servegen_rates_10min_days0-6.csv.gz");
  if (!shapes.ok()) return Fail(shapes.status());
  FleetSize size;
  size.gpus = static_cast<uint32_t>(arguments.Count("--gpus"));
  size.models = static_cast<uint32_t>(arguments.Count("--models"));
  size.seconds = arguments.Number("--seconds");
  size.rate_per_gpu = arguments.Number("--rate");
  const sim::World world = MakeFleet(size);
  const workload::Trace trace = MakeLoad(size, *shapes, *lengths, 1);
  std::vector<uint32_t> model_of(size.models);
  std::iota(model_of.begin(), model_of.end(), 0u);
  sim::RunOptions options;
  options.on_progress = [&](double seconds, uint64_t) {
    ShowProgress(seconds, size.seconds);
  };
  const auto wall = std::chrono::steady_clock::now();
  const double cpu = CpuSeconds();
  const auto result = sim::Run(world, trace, model_of, options);
  if (!result.ok()) return Fail(result.status());
  const double took_cpu = CpuSeconds() - cpu;
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - wall)
          .count();
  const auto requests = static_cast<double>(trace.arrivals.size());
  uint64_t tokens = 0, steps = 0;
  for (const sim::Gpu::Counters& gpu : result->gpus) {
    tokens += gpu.tokens;
    steps += gpu.steps;
  }
  const auto summary = workload::Summarize(result->outcomes, result->seconds);
  Report report("sim");
  report.Figure("requests", requests);
  report.Figure("engine steps", static_cast<double>(steps));
  report.Figure("tokens generated", static_cast<double>(tokens));
  report.Figure("on time (%)", 100 * summary.attainment);
  report.Figure("TTFT p50 (ms)", 1000 * summary.ttft_s.p50);
  report.Figure("TTFT p99 (ms)", 1000 * summary.ttft_s.p99);
  report.Figure("time of the simulation (s)", took);
  report.Figure("CPU of the simulation (s)", took_cpu);
  report.Figure("CPU of a request (us)", 1e6 * took_cpu / requests);
  report.Claim("requests a minute, on one core", 60 * requests / took_cpu, 1e6,
               Compare::kAtLeast);
  report.Claim("most memory, the load included (GiB)", Gibibytes(), 16,
               Compare::kAtMost);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
