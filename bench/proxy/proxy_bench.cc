// What does fineserve-proxy cost, next to nginx as the same reverse proxy?
//
// One engine that costs nothing, three ways to it: directly, through nginx,
// through fineserve-proxy (which also reads the JSON, asks admission and counts
// tokens). Each cell runs the three in turn, several rounds, so that a slow
// minute of the machine falls on all; medians over the rounds are told. CPU is
// the proxy process's own, per request. A stream's events come a millisecond
// apart, so that nobody can save work by joining them.

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bench/micro/report.h"
#include "bench/proxy/load.h"
#include "bench/proxy/subject.h"
#include "bench/proxy/upstream.h"

namespace fineserve::bench {
namespace {

constexpr int kRounds = 5;
constexpr double kRoundSeconds = 1.5;
constexpr int kHeldStreams = 1000;

// One way to the engine, round by round.
struct Series {
  std::vector<double> per_second, p50_us, p99_us, cpu_us;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Add(const Load& load, double cpu_seconds, Series* series) {
  series->per_second.push_back(load.PerSecond());
  series->p50_us.push_back(load.LatencyUs(0.5));
  series->p99_us.push_back(load.LatencyUs(0.99));
  series->cpu_us.push_back(cpu_seconds * 1e6 /
                           static_cast<double>(load.requests));
}

struct Cell {
  Series direct, nginx, ours;
};

class Bench {
 public:
  Bench()
      : nginx_(Subject::Nginx(engine_.port())),
        ours_(Subject::FineServe(engine_.port())) {}

  double MeasureCell(Kind kind, int connections, Report* report) const {
    Cell cell;
    for (int round = 0; round < kRounds; ++round) {
      Add(RunLoad(engine_.port(), kind, connections, kRoundSeconds), 0,
          &cell.direct);
      Through(nginx_, kind, connections, &cell.nginx);
      Through(ours_, kind, connections, &cell.ours);
    }
    const std::string name =
        std::string(kind == Kind::kPlain ? "plain" : "stream") + ", " +
        std::to_string(connections) + " connections: ";
    return Tell(name, cell, report);
  }

  void MeasureMemory(Report* report) const {
    report->Figure("idle stream, nginx (KiB resident)", KibPerStream(nginx_));
    report->Figure("idle stream, fineserve-proxy (KiB resident)",
                   KibPerStream(ours_));
  }

 private:
  static void Through(const Subject& subject, Kind kind, int connections,
                      Series* series) {
    const double before = subject.CpuSeconds();
    const Load load = RunLoad(subject.port(), kind, connections, kRoundSeconds);
    Add(load, subject.CpuSeconds() - before, series);
  }

  // The ratio of CPU per request.
  static double Tell(const std::string& name, const Cell& cell,
                     Report* report) {
    report->Figure(name + "direct (requests/s)",
                   Median(cell.direct.per_second));
    const double p50 = Median(cell.direct.p50_us);
    const double p99 = Median(cell.direct.p99_us);
    for (const auto& [who, series] :
         {std::pair{"nginx", &cell.nginx}, {"fineserve", &cell.ours}}) {
      const std::string at = name + who;
      report->Figure(at + " (requests/s)", Median(series->per_second));
      report->Figure(at + " added p50 (us)", Median(series->p50_us) - p50);
      report->Figure(at + " added p99 (us)", Median(series->p99_us) - p99);
      report->Figure(at + " CPU (us/request)", Median(series->cpu_us));
    }
    return Median(cell.ours.cpu_us) / Median(cell.nginx.cpu_us);
  }

  static double KibPerStream(const Subject& subject) {
    // What stays with the allocator after the first streams is not theirs.
    for (const int fd : HoldStreams(subject.port(), 100)) close(fd);
    const uint64_t before = subject.ResidentBytes();
    const std::vector<int> held = HoldStreams(subject.port(), kHeldStreams);
    const uint64_t after = subject.ResidentBytes();
    for (const int fd : held) close(fd);
    return static_cast<double>(after - before) / 1024 / kHeldStreams;
  }

  const Upstream engine_;
  const Subject nginx_;
  const Subject ours_;
};

void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Run(int argc, char** argv) {
  RaiseDescriptorLimit();
  const Bench bench;
  Report report("proxy");
  bench.MeasureMemory(&report);
  for (const Kind kind : {Kind::kPlain, Kind::kStream}) {
    for (const int connections : {1, 32, 256}) {
      const double ratio = bench.MeasureCell(kind, connections, &report);
      report.Claim(std::string("CPU per request over nginx's, ") +
                       (kind == Kind::kPlain ? "plain" : "stream") + ", " +
                       std::to_string(connections) + " connections",
                   ratio, 2, Compare::kAtMost);
    }
  }
  return Finish(report, argc, argv);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Run(argc, argv); }
