// Measures the speed and size of the simulator: see kQuestion.

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/report/report.h"
#include "daemon/fleet/config/fleet.h"
#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/sim/fleet/site.h"
#include "tools/lab/sim/fleet/world.h"
#include "tools/lab/workload/arrivals.h"
#include "tools/lab/workload/rates.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {
namespace {

// A large fleet and its load, which are generated and not measured.
struct FleetSize {
  uint32_t gpus = 0;
  uint32_t models = 0;
  double seconds = 0;
  double rate_per_gpu = 1;  // requests per second, on average
};

// Rate of one engine, well below what it can serve.
constexpr double kReplicaRate = 6;

std::string NameOf(uint32_t model) { return absl::StrCat("m", model); }

std::vector<double> MeanRates(const FleetSize& size) {
  std::vector<double> rates(size.models);
  double sum = 0;
  for (uint32_t m = 0; m < size.models; ++m) sum += rates[m] = 1.0 / (m + 1);
  for (double& rate : rates) rate *= size.rate_per_gpu * size.gpus / sum;
  return rates;
}

// Makes models of 8B, in FP16 and FP8 in turn. The mean rate of model i is
// proportional to 1 / (i + 1); it has as many replicas as its rate needs, each
// on the GPU with the lowest rate so far.
sim::World MakeFleet(const FleetSize& size) {
  config::Fleet fleet;
  // By rate, the least first.
  std::priority_queue<std::pair<double, uint32_t>,
                      std::vector<std::pair<double, uint32_t>>, std::greater<>>
      gpus;
  for (uint32_t g = 0; g < size.gpus; ++g) gpus.emplace(0, g);
  const std::vector<double> rates = MeanRates(size);
  for (uint32_t m = 0; m < size.models; ++m) {
    config::FleetModel model;
    model.name = NameOf(m);
    model.slo_ttft_ms = 1000;
    model.kv_token_bytes = m % 2 == 0 ? 131072 : 65536;
    model.profile = config::StepProfile{8000, 40, 60};
    fleet.models.push_back(model);
    const auto replicas = std::min(
        size.gpus, static_cast<uint32_t>(std::ceil(rates[m] / kReplicaRate)));
    std::vector<std::pair<double, uint32_t>> used;
    for (uint32_t r = 0; r < replicas; ++r) {
      auto [rate, gpu] = gpus.top();
      gpus.pop();
      config::FleetEngine engine;
      engine.name = absl::StrCat(model.name, "-", r);
      engine.model = model.name;
      engine.gpu = absl::StrCat("GPU-", gpu);
      fleet.engines.push_back(engine);
      used.emplace_back(rate + rates[m] / replicas, gpu);
    }
    for (const auto& gpu : used) gpus.push(gpu);
  }
  sim::Site site;
  site.pool_bytes = uint64_t{48} << 30;
  for (const config::FleetModel& m : fleet.models) {
    site.models[m.name].longest_tokens = 4096;
  }
  absl::StatusOr<sim::World> world = sim::MakeWorld(fleet, site);
  if (!world.ok()) {
    fprintf(stderr, "sim: %s\n", std::string(world.status().message()).c_str());
    abort();  // it is made above
  }
  return *std::move(world);
}

// Makes Poisson arrivals whose rates follow ServeGen's, with a different
// starting time for each model.
workload::Trace MakeLoad(const FleetSize& size,
                         const workload::RateShapes& shapes,
                         const std::vector<workload::Lengths>& lengths,
                         uint64_t seed) {
  const std::vector<double> rates = MeanRates(size);
  std::vector<const std::vector<double>*> rows;
  for (const auto& [model, shape] : shapes) rows.push_back(&shape);
  workload::Slots slots;
  slots.seconds = workload::kShapeSlotSeconds;
  for (double from = 0; from < size.seconds; from += slots.seconds) {
    const size_t slot = slots.streams.size();
    std::vector<workload::Stream> streams;
    for (uint32_t m = 0; m < size.models; ++m) {
      const std::vector<double>& shape = *rows[m % rows.size()];
      const double now = shape[(m / rows.size() + slot) % shape.size()];
      streams.push_back({NameOf(m), rates[m] * now});
    }
    slots.streams.push_back(std::move(streams));
  }
  workload::Trace trace =
      workload::PoissonBySlots(slots, size.seconds, lengths, seed);
  for (workload::Arrival& a : trace.arrivals) {
    // Cuts longer requests, which the simulator would refuse, as engines do.
    a.lengths.input = std::min(a.lengths.input, 3000u);
    a.lengths.output = std::min(a.lengths.output, 1000u);
  }
  return trace;
}

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
