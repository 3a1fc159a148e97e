// Compares requests dealt to replicas with a single queue: see kQuestion.

#include <stdio.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/compare/compared_fleet.h"
#include "bench/compare/loads.h"
#include "bench/compare/point.h"
#include "bench/compare/probes.h"
#include "bench/compare/simulated_fleet.h"
#include "bench/report/interval.h"
#include "bench/report/report.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(Do replicas with a daemon each start as many requests on time as one queue?

The fleet of `bench compare` with an engine of each model on each GPU, simulated:
once with a daemon on each GPU, among which the proxy's own code deals the
requests; once with one daemon that sees all engines. KV is what runs out. At load
2 each request that starts decides which others can, so two runs of one minute
differ by several points for nothing: this bench takes ten minutes and several
seeds, and gives the mean difference with its 95 % interval. On time is a first
token within 1 s; the first 20 s do not count. By default it takes two minutes.)";

constexpr char kLengthsFile[] =
    "/lengths_sharegpt_firstturn_llama2tok_even.csv.gz";
// Times on the path to an idle engine, in µs, as measured with the real proxy
// and daemon.
constexpr int kAskUs = 700, kSendUs = 300, kAnswerUs = 300;
constexpr double kMostLost = 1;

About TheBench() {
  return {"replicas",
          kQuestion,
          {{"--data", "DIR", "../shared/data", "folder of the real traces"},
           {"--seconds", "N", "600", "length of each run, without its begin"},
           {"--seeds", "N", "6", "runs of each case"}}};
}

struct Case {
  size_t gpus, models;
  double load;
};
constexpr Case kCases[] = {{2, 1, .5}, {2, 1, 1}, {2, 1, 2}, {2, 3, 1},
                           {2, 3, 2},  {4, 1, 1}, {4, 1, 2}};

class Replicas {
 public:
  Replicas(std::vector<workload::Lengths> lengths, double seconds)
      : lengths_(std::move(lengths)), seconds_(kWarmSeconds + seconds) {}

  // Requests on time, in %.
  double OnTime(const Case& c, EnginePlacement placement, uint64_t seed) const {
    const FleetShape shape = {placement, c.gpus, c.models};
    const std::string fleet = folder_.path() + "/fleet.toml";
    const std::string site = folder_.path() + "/site.toml";
    FleetOf(shape).WriteTo(fleet);
    sim::PathTimes path;
    path.ask_us = kAskUs;
    path.send_us = kSendUs;
    path.answer_us = kAnswerUs;
    std::ofstream(site) << ComparedFleet::SiteText(path, shape);
    const workload::Trace trace =
        AfterProbes(Steady(lengths_, c.load, seconds_, seed, shape));
    const auto run = Simulate(fleet, site, trace);
    if (!run.ok()) Die(std::string(run.status().message()));
    return 100 *
           SummaryFrom(kFromSeconds, run->outcomes, run->seconds).attainment;
  }

 private:
  static stage::FleetText FleetOf(const FleetShape& shape) {
    std::vector<std::string> gpus;
    std::vector<uint16_t> ports;
    for (size_t g = 0; g < shape.gpus; ++g) {
      gpus.push_back(absl::StrCat("GPU-", g));
      for (size_t m = 0; m < shape.models; ++m) {
        ports.push_back(static_cast<uint16_t>(9000 + ports.size()));
      }
    }
    return ComparedFleet::Text(gpus, 8000, ports, "tinyserve", shape);
  }

  const std::vector<workload::Lengths> lengths_;
  const double seconds_;
  const process::TemporaryFolder folder_;
};

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  auto lengths = workload::ReadLengths(arguments.Text("--data") + kLengthsFile);
  if (!lengths.ok()) {
    Die(absl::StrCat(std::string(lengths.status().message()),
                     "; set the folder with --data"));
  }
  const Replicas replicas(*std::move(lengths), arguments.Number("--seconds"));
  const uint64_t seeds = arguments.Count("--seeds");
  Report report("replicas");
  for (const Case& c : kCases) {
    std::vector<double> dealt, one_queue;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      dealt.push_back(replicas.OnTime(c, EnginePlacement::kReplicas, seed));
      one_queue.push_back(replicas.OnTime(c, EnginePlacement::kOneQueue, seed));
    }
    const std::string name = absl::StrFormat("%d GPUs, %d models, load %g",
                                             c.gpus, c.models, c.load);
    const Interval lost = DifferenceOf(one_queue, dealt);
    report.Figure(name + ": on time, replicas (%)", MeanOf(dealt).mean);
    report.Figure(name + ": on time, one queue (%)", MeanOf(one_queue).mean);
    report.Figure(name + ": lost, from (points)", lost.low());
    report.Figure(name + ": lost, to (points)", lost.high());
    report.Claim(name + ": lost to one queue, mean (points)", lost.mean,
                 kMostLost, Compare::kAtMost);
    fprintf(stderr, "%s: lost %s points\n", name.c_str(), Text(lost).c_str());
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
