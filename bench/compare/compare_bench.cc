// Compares the simulator with real processes: see kQuestion.

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/compare/compared_fleet.h"
#include "bench/compare/loads.h"
#include "bench/compare/point.h"
#include "bench/compare/probes.h"
#include "bench/compare/simulated_fleet.h"
#include "bench/micro/timed_move.h"
#include "bench/report/report.h"
#include "bench/serving/clients.h"
#include "bench/serving/fleet_service.h"
#include "bench/soak/interrupt.h"
#include "daemon/contract/abi/observer_link.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/figures.h"
#include "tools/lab/workload/trace.h"
#include "tools/openai/target.h"

namespace fineserve::bench {
namespace {

// ComparedFleet as real processes, which end with this object. Confined to the
// thread that creates it.
class RealFleet {
 public:
  explicit RealFleet(const FleetShape& shape);

  // Starts everything and waits until each model answers. If that fails or
  // SIGINT came, prints a message on standard error and returns false.
  bool Start();
  RunOutcome Send(const workload::Trace& trace);

  // Counts of all engines since they started.
  struct Counters {
    uint64_t preemptions = 0;
    uint64_t late_steps = 0;  // whose copies took longer than the modelled step
    uint64_t activations = 0;
  };
  // Returns false, after a message, if an engine does not report its counts.
  bool Read(Counters* counters) const;
  // Makes the first engine leave and come back some times. Returns nullopt,
  // after a message, if it does not.
  absl::optional<MoveTimes> Move() const;

  // Returns the same fleet with another placement, for the simulator.
  stage::FleetText FleetOf(EnginePlacement placement) const;
  // A file beside it.
  std::string Path(const std::string& name) const {
    return service_.Path(name);
  }

 private:
  FleetService service_;
  const FleetShape shape_;
  std::vector<uint16_t> engine_ports_;  // by engine
  std::vector<std::string> gpus_;       // their UUIDs, once it has started
};

using Fleet = ComparedFleet;

constexpr std::chrono::seconds kPagePatience(10);

uint64_t Count(double metric) {
  return static_cast<uint64_t>(std::max(metric, 0.0));
}

RealFleet::RealFleet(const FleetShape& shape)
    : service_("compare", Fleet::GpusOf(shape)), shape_(shape) {
  for (size_t e = 0; e < Fleet::Engines(shape).size(); ++e) {
    engine_ports_.push_back(process::FreePort());
  }
}

stage::FleetText RealFleet::FleetOf(EnginePlacement placement) const {
  return Fleet::Text(gpus_, service_.port(), engine_ports_,
                     FleetService::Tinyserve(), shape_.With(placement));
}

bool RealFleet::Start() {
  gpus_ = service_.FindGpus();
  return !gpus_.empty() && service_.Start(FleetOf(shape_.placement)) &&
         service_.AwaitModels(service_.port(), Fleet::Models(shape_));
}

RunOutcome RealFleet::Send(const workload::Trace& trace) {
  const Sending sending = {Fleet::kSlo, /*timeout_s=*/120, /*progress=*/true};
  RunOutcome run = bench::Send(service_.port(), trace, sending);
  CatchInterrupts();
  return run;
}

bool RealFleet::Read(Counters* counters) const {
  *counters = {};
  for (const uint16_t port : engine_ports_) {
    const openai::Target engine = {"127.0.0.1", absl::StrCat(port), "", ""};
    const auto page = openai::GetPage(engine, "/metrics", kPagePatience);
    if (!page.ok()) {
      return service_.Fail(std::string(page.status().message()));
    }
    counters->preemptions +=
        Count(stage::MetricOf(page->body, "vllm:num_preemptions_total"));
    counters->late_steps +=
        Count(stage::MetricOf(page->body, "tinyserve:late_steps_total"));
  }
  for (const uint16_t port : service_.metrics_ports()) {
    const openai::Target daemon = {"127.0.0.1", absl::StrCat(port), "", ""};
    const auto page = openai::GetPage(daemon, "/metrics", kPagePatience);
    if (!page.ok()) {
      return service_.Fail(std::string(page.status().message()));
    }
    counters->activations += Count(stage::MetricOf(
        page->body, "fineserve_moves_total{result=\"activated\"}"));
  }
  return true;
}

absl::optional<MoveTimes> RealFleet::Move() const {
  constexpr int kRounds = 5;
  const std::string name = Fleet::Engines(shape_).front().name;
  for (const std::string& socket : service_.Sockets()) {
    const auto link = abi::ConnectObserver(socket);
    if (!link.ok()) continue;
    MoveTimes times;
    absl::Status trouble;
    const auto seconds_to = [&](abi::Place to) {
      const auto moved = MoveTimed(*link, name, to);
      trouble.Update(moved.status());
      if (moved.ok()) times.bytes = moved->bytes;
      return moved.ok() ? moved->seconds : 0;
    };
    std::vector<double> leave_s, back_s;
    seconds_to(abi::Place::kGpu);
    seconds_to(abi::Place::kHost);  // it copies
    seconds_to(abi::Place::kGpu);
    for (int round = 0; round < kRounds; ++round) {
      leave_s.push_back(seconds_to(abi::Place::kHost));
      back_s.push_back(seconds_to(abi::Place::kGpu));
    }
    if (absl::IsNotFound(trouble)) continue;  // another GPU's
    if (!trouble.ok()) {
      service_.Fail(absl::StrCat("engine ", name, ": ", trouble.message()));
      return absl::nullopt;
    }
    times.leave_s = workload::Quantile(leave_s, 0.5);
    times.back_s = workload::Quantile(back_s, 0.5);
    return times;
  }
  service_.Fail("no daemon has an engine " + name);
  return absl::nullopt;
}

constexpr char kQuestion[] =
    R"(Does fineserve-sim say what real processes do?

The same fleet file and the same requests, twice. Real: a fineserved on each of
two emulated GPUs, fsctl up with four tinyserve engines at real speed, two on
each GPU, which share its pool, fineserve-proxy, and loadgen's code in this
process. Simulated: fineserve-sim's code in virtual time, which gets as input how long
a request to an idle engine is under way (80 of them begin each run, on either
side) and nothing else.

The models' KV differs (8, 2, 6 and 4 KiB a token), their steps do not: 25 ms,
and 50 us for each token of a prompt. At load 1 the pools are booked all the
time: requests hold all their blocks as long as an engine alone needs for them.
Trace "poisson": Poisson arrivals, lengths of ShareGPT's first turns. Trace
"bursty": Azure's conversations of 2023, each model another part of them. Prompts
are cut to 640 tokens, answers to 160. On time is a first token within 1 s; what
is refused is late. The first 10 s of each load do not count.

With --weights MIB there are ten models with so many MiB of weights each, of which
two fit on each GPU: engines leave for others and come back when they are asked.
Trace "arena": Prism's arena27 from its second 190 on, its ten busiest models. The
simulator also gets how long one of them takes to leave and to come back, which
is measured before.

With --replicas N each model has an engine on each of N GPUs, and the simulation
is run once more with one daemon that sees all engines: no dealer can know more.

Runs during which the host was busier than 80 % are shown, but claims leave them
out. By default it takes 11 minutes.)";

constexpr char kLengthsFile[] =
    "/lengths_sharegpt_firstturn_llama2tok_even.csv.gz";
constexpr char kTraceFile[] = "/azure2023_conv_first30min.csv.gz";
constexpr char kArenaFile[] = "/arena27_prism_vtc_600s.csv.gz";
constexpr double kArenaFrom = 190;  // all ten are asked from here on

struct Settings {
  std::vector<workload::Lengths> lengths;
  workload::Trace real_trace;
  std::vector<std::string> traces;
  std::vector<double> loads;
  double seconds = 0;
  uint64_t seed = 0;
  FleetShape shape;
  bool has_replicas() const {
    return shape.placement == EnginePlacement::kReplicas;
  }
  std::string requests_path;  // empty: outcomes are not written
};

bool Fail(const std::string& what) {
  fprintf(stderr, "compare: %s\n", what.c_str());
  return false;
}

class Comparison {
 public:
  explicit Comparison(const Settings& settings) : settings_(settings) {}

  // Returns false, after a message, if something does not start or SIGINT came.
  bool Run() {
    fputs(Header().c_str(), stderr);
    for (const std::string& trace : settings_.traces) {
      for (const double load : settings_.loads) {
        if (!RunPoint(trace, load)) return false;
      }
    }
    return true;
  }

  const std::vector<Point>& points() const { return points_; }

 private:
  workload::Trace MakeTrace(const std::string& name, double load) const {
    const double seconds = kWarmSeconds + settings_.seconds;
    const auto& [real, seed, shape] =
        std::tie(settings_.real_trace, settings_.seed, settings_.shape);
    if (name == "arena") {
      // Probes the first engine of each GPU, which is on the GPU from the
      // start.
      return AfterProbes(Busiest(real, kArenaFrom, load, seconds, seed, shape),
                         {0, 2});
    }
    return AfterProbes(
        name == "poisson"
            ? Steady(settings_.lengths, load, seconds, seed, shape)
            : Bursty(real, load, seconds, seed, shape));
  }

  // Starts new processes for each point, so that they begin as the simulator
  // does.
  bool RunPoint(const std::string& name, double load) {
    const workload::Trace trace = MakeTrace(name, load);
    Point point;
    point.name = absl::StrFormat("%s, %g", name, load);
    RealFleet fleet(settings_.shape);
    RealFleet::Counters before, after;
    if (!fleet.Start()) return false;
    MoveTimes moves;
    if (settings_.shape.evicts()) {
      const auto measured = fleet.Move();
      if (!measured) return false;
      moves = *measured;
    }
    if (!fleet.Read(&before)) return false;
    const RunOutcome real = fleet.Send(trace);
    if (real.interrupted || Interrupted() || !fleet.Read(&after)) return false;
    point.real = {SummaryFrom(kFromSeconds, real.outcomes, real.seconds),
                  static_cast<double>(after.preemptions - before.preemptions),
                  static_cast<double>(after.activations - before.activations)};
    point.host_busy = real.cpu;
    point.late_steps =
        static_cast<double>(after.late_steps - before.late_steps);

    const auto path = PathOf(real.outcomes);
    if (!path) return Fail("no request to an idle engine was answered");
    const auto simulated =
        RunSimulation(fleet, settings_.shape.placement, *path, moves, trace);
    if (!simulated) return false;
    point.simulated = SideOf(*simulated);
    if (settings_.has_replicas()) {
      const auto one =
          RunSimulation(fleet, EnginePlacement::kOneQueue, *path, moves, trace);
      if (!one) return false;
      point.one_queue = SideOf(*one);
    }
    fputs(Row(point).c_str(), stderr);
    Write(point.name, real.outcomes, simulated->outcomes);
    points_.push_back(std::move(point));
    return true;
  }

  static Side SideOf(const SimulatedRun& run) {
    return {SummaryFrom(kFromSeconds, run.outcomes, run.seconds),
            static_cast<double>(run.preemptions),
            static_cast<double>(run.activations)};
  }

  // Returns nullopt, after a message, if the files are wrong.
  absl::optional<SimulatedRun> RunSimulation(
      const RealFleet& fleet, EnginePlacement placement,
      const sim::PathTimes& path, const MoveTimes& moves,
      const workload::Trace& trace) const {
    const std::string fleet_path = fleet.Path("simulated.toml");
    const std::string site_path = fleet.Path("site.toml");
    fleet.FleetOf(placement).WriteTo(fleet_path);
    std::ofstream(site_path) << ComparedFleet::SiteText(
        path, settings_.shape.With(placement), moves);
    absl::StatusOr<SimulatedRun> run = Simulate(fleet_path, site_path, trace);
    if (run.ok()) return *std::move(run);
    Fail(std::string(run.status().message()));
    return absl::nullopt;
  }

  void Write(const std::string& name,
             const std::vector<workload::Outcome>& real,
             const std::vector<workload::Outcome>& simulated) const {
    if (settings_.requests_path.empty()) return;
    std::ofstream file(settings_.requests_path, std::ios::app);
    for (size_t i = 0; i < real.size() && i < simulated.size(); ++i) {
      const workload::Outcome& r = real[i];
      const workload::Outcome& s = simulated[i];
      file << absl::StrFormat(
          "\"%s\",%.6f,%d,%d,%d,%d,%.6f,%.6f,%d,%.6f,%.6f\n", name, r.begin_s,
          r.model, s.lengths.input,
          std::max(r.lengths.output, s.lengths.output), static_cast<int>(r.end),
          r.ttft_s(), r.end_s - r.begin_s, static_cast<int>(s.end), s.ttft_s(),
          s.end_s - s.begin_s);
    }
  }

  const Settings& settings_;
  std::vector<Point> points_;
};

About TheBench() {
  return {
      "compare",
      kQuestion,
      {{"--data", "DIR", "../shared/data", "folder of the real traces"},
       {"--traces", "LIST", "poisson,bursty", "which; arena, with --weights"},
       {"--loads", "LIST", "0.7,1,1.4,2", "loads of each trace"},
       {"--seconds", "N", "45", "length of each run, without its begin"},
       {"--seed", "N", "1", "of the requests"},
       {"--replicas", "N", "1", "engines of each model, each on its own GPU"},
       {"--models", "N", "4", "how many of the models; 10, with --weights"},
       {"--weights", "MIB", "0", "of each engine, which leaves for others"},
       {"--requests", "FILE", "",
        "append a line for each request: run, begin_s, model, prompt, "
        "answer, then end (0 done, 1 refused), TTFT and time of the real "
        "and of the simulated one"}}};
}

// Returns false, after a message, if a file or a list is wrong.
bool Read(const Arguments& arguments, Settings* settings) {
  const std::string data = arguments.Text("--data");
  auto lengths = workload::ReadLengths(data + kLengthsFile);
  const bool evicts = arguments.Count("--weights") != 0;
  auto trace = workload::ReadTrace(data + (evicts ? kArenaFile : kTraceFile));
  for (const absl::Status& s : {lengths.status(), trace.status()}) {
    if (!s.ok()) {
      return Fail(absl::StrCat(std::string(s.message()),
                               "; set the folder with --data"));
    }
  }
  settings->lengths = *std::move(lengths);
  settings->real_trace = *std::move(trace);
  settings->traces = absl::StrSplit(arguments.Text("--traces"), ',');
  if (evicts) settings->traces = {"arena"};
  for (const std::string& name : settings->traces) {
    if (name == "poisson" || name == "bursty" || evicts) continue;
    return Fail(absl::StrCat("--traces: no trace \"", name, "\""));
  }
  const std::vector<std::string> loads =
      absl::StrSplit(arguments.Text("--loads"), ',');
  for (const std::string& text : loads) {
    double load = 0;
    if (!absl::SimpleAtod(text, &load) || !(load > 0)) {
      return Fail(absl::StrCat("--loads: \"", text, "\" is no load"));
    }
    settings->loads.push_back(load);
  }
  settings->seconds = arguments.Number("--seconds");
  settings->seed = arguments.Count("--seed");
  if (const uint64_t replicas = arguments.Count("--replicas"); replicas > 1) {
    settings->shape.placement = EnginePlacement::kReplicas;
    settings->shape.gpus = replicas;
  }
  settings->shape.weights_mib =
      static_cast<uint32_t>(arguments.Count("--weights"));
  settings->shape.models = evicts
                               ? std::size(kComparedModels)
                               : std::min<size_t>(arguments.Count("--models"),
                                                  std::size(kComparedModels));
  settings->requests_path = arguments.Text("--requests");
  return true;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  Settings settings;
  if (!Read(arguments, &settings)) return 1;
  CatchInterrupts();
  Comparison comparison(settings);
  if (!comparison.Run()) return 1;
  Report report("compare");
  Tell(comparison.points(), &report);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
