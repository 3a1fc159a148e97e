// The cost of the proxy: see kQuestion.

#include <stdio.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "bench/micro/gpu_site.h"
#include "bench/micro/process_usage.h"
#include "bench/micro/run_first.h"
#include "bench/proxy/large_bodies.h"
#include "bench/proxy/load.h"
#include "bench/proxy/subject.h"
#include "bench/proxy/upstream.h"
#include "bench/report/report.h"
#include "kernels/driver/descriptor_limit.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does fineserve-proxy cost, compared with nginx as the same reverse proxy?

There is one engine that costs nothing, and four ways to it: directly, through
nginx, through a fineserve-proxy that decides by itself (it also reads the JSON
and counts tokens), and through one that asks a fineserved about each request.
Each cell runs the four in turn for several rounds, so that a slow phase of the
machine affects all; medians over the rounds are reported. CPU is that of all
threads of each process, per request. The events of a stream come a millisecond
apart, so that no proxy saves work by joining them.

Large bodies: how long does one wait for /health beside 16 clients that send
31 MiB each? As a prompt, as token ids and in chunks. The loop and the probe run
before all other threads where that is permitted.

--beside FILE is a fineserve-proxy of another build, say of the commit before,
which takes turns with this one: with large bodies, and deciding by itself.)";

constexpr int kRounds = 5;
constexpr double kRoundSeconds = 1.5;
constexpr int kHeldStreams = 1000;
constexpr int kLargeRounds = 3, kLargeClients = 16;
constexpr double kLargeSeconds = 5;
constexpr double kMostBesideMs = 20;

// The figures of one way to the engine, by round.
struct Series {
  std::vector<double> per_second, p50_us, p99_us, cpu_us, daemon_us;

  double CpuUs() const { return Median(cpu_us); }
};

double UsPerRequest(double seconds, const Load& load) {
  return seconds * 1e6 / static_cast<double>(load.requests);
}

void Add(const Load& load, Series* series) {
  series->per_second.push_back(load.PerSecond());
  series->p50_us.push_back(load.LatencyUs(0.5));
  series->p99_us.push_back(load.LatencyUs(0.99));
}

struct Cell {
  std::string name;
  Series direct, nginx, alone, other, scheduled;
};

class Bench {
 public:
  // `other` is another build's proxy; empty if there is none.
  explicit Bench(const std::string& other)
      : nginx_(Subject::Nginx(engine_.port())),
        alone_(Subject::Alone(engine_.port())),
        scheduled_(Subject::Scheduled(engine_.port(), &gpu_)) {
    if (!other.empty()) {
      other_.emplace(Subject::Alone(engine_.port(), {}, other));
    }
  }

  Cell MeasureCell(Kind kind, int connections) const {
    Cell cell;
    cell.name = std::string(kind == Kind::kPlain ? "plain" : "stream") + ", " +
                std::to_string(connections) + " connections";
    for (int round = 0; round < kRounds; ++round) {
      Add(RunLoad(engine_.port(), kind, connections, kRoundSeconds),
          &cell.direct);
      Through(nginx_, kind, connections, &cell.nginx);
      Through(alone_, kind, connections, &cell.alone);
      if (other_) Through(*other_, kind, connections, &cell.other);
      Through(scheduled_, kind, connections, &cell.scheduled);
    }
    return cell;
  }

  void MeasureMemory(Report* report) const {
    report->Figure("idle stream, nginx (KiB resident)", KibPerStream(nginx_));
    report->Figure("idle stream, fineserve-proxy (KiB resident)",
                   KibPerStream(scheduled_));
  }

 private:
  void Through(const Subject& subject, Kind kind, int connections,
               Series* series) const {
    const double before_s = CpuSecondsOf(subject.pid());
    const double daemon_before_s = CpuSecondsOf(gpu_.daemon_pid());
    const Load load = RunLoad(subject.port(), kind, connections, kRoundSeconds);
    series->cpu_us.push_back(
        UsPerRequest(CpuSecondsOf(subject.pid()) - before_s, load));
    series->daemon_us.push_back(
        UsPerRequest(CpuSecondsOf(gpu_.daemon_pid()) - daemon_before_s, load));
    Add(load, series);
  }

  static double KibPerStream(const Subject& subject) {
    // Fills the allocator's caches with the first streams; later ones reuse
    // them.
    for (const int fd : HoldStreams(subject.port(), 100)) close(fd);
    const uint64_t before = ResidentBytesOf(subject.pid());
    const std::vector<int> held = HoldStreams(subject.port(), kHeldStreams);
    const uint64_t after = ResidentBytesOf(subject.pid());
    for (const int fd : held) close(fd);
    return static_cast<double>(after - before) / 1024 / kHeldStreams;
  }

  const Upstream engine_;
  GpuSite gpu_;
  const Subject nginx_, alone_, scheduled_;
  absl::optional<Subject> other_;
};

// Limit on a request's CPU time, in multiples of nginx's.
double MostOf(Kind kind, int connections) {
  if (kind == Kind::kStream) return 1.2;
  return connections == 1 ? 1.6 : 1.3;
}

void Tell(const Cell& cell, double most, Report* report) {
  report->Figure(cell.name + ": direct (requests/s)",
                 Median(cell.direct.per_second));
  for (const auto& [who, series] :
       {std::pair{"nginx", &cell.nginx},
        {"proxy alone", &cell.alone},
        {"proxy and fineserved", &cell.scheduled}}) {
    const std::string at = cell.name + ": " + who;
    report->Figure(at + " (requests/s)", Median(series->per_second));
    report->Figure(at + ", added p50 (us)",
                   Median(series->p50_us) - Median(cell.direct.p50_us));
    report->Figure(at + ", added p99 (us)",
                   Median(series->p99_us) - Median(cell.direct.p99_us));
    report->Figure(at + ", CPU of the proxy (us/request)", series->CpuUs());
  }
  const double nginx_us = cell.nginx.CpuUs();
  const double daemon_us = Median(cell.scheduled.daemon_us);
  report->Figure(cell.name + ": CPU of fineserved (us/request)", daemon_us);
  report->Figure(cell.name + ": proxy alone over nginx, CPU",
                 cell.alone.CpuUs() / nginx_us);
  report->Figure(cell.name + ": proxy and fineserved over nginx, CPU",
                 (cell.scheduled.CpuUs() + daemon_us) / nginx_us);
  if (!cell.other.cpu_us.empty()) {
    report->Figure(cell.name + ": the other build alone, CPU (us/request)",
                   cell.other.CpuUs());
    report->Figure(cell.name + ": proxy alone over the other build, CPU",
                   cell.alone.CpuUs() / cell.other.CpuUs());
  }
  report->Claim(
      "CPU per request of a proxy that asks fineserved over nginx's, " +
          cell.name,
      cell.scheduled.CpuUs() / nginx_us, most, Compare::kAtMost);
}

// A proxy through which large bodies pass.
struct Passed {
  std::string name;
  const Subject* subject;
  std::vector<double> p50_ms = {}, p99_ms = {}, longest_ms = {}, bodies = {};
};

void MeasureLarge(const std::string& kind_name, LargeBody kind,
                  std::vector<Passed> all, Report* report) {
  for (int round = 0; round < kLargeRounds; ++round) {
    for (Passed& passed : all) {
      const Beside beside = MeasureBeside(passed.subject->port(), kind,
                                          kLargeClients, kLargeSeconds);
      passed.p50_ms.push_back(beside.WaitMs(0.5));
      passed.p99_ms.push_back(beside.WaitMs(0.99));
      passed.longest_ms.push_back(beside.WaitMs(1));
      passed.bodies.push_back(static_cast<double>(beside.bodies));
      fprintf(stderr, "%s, %s: p50 %.1f, p99 %.1f, longest %.1f ms\n",
              kind_name.c_str(), passed.name.c_str(), passed.p50_ms.back(),
              passed.p99_ms.back(), passed.longest_ms.back());
    }
  }
  for (const Passed& passed : all) {
    const std::string of = "large bodies, " + kind_name + ": " + passed.name;
    report->Figure(of + ", p50 beside (ms)", Median(passed.p50_ms));
    report->Figure(of + ", p99 beside (ms)", Median(passed.p99_ms));
    report->Figure(of + ", longest beside (ms)", Median(passed.longest_ms));
    report->Figure(of + ", bodies/s", Median(passed.bodies) / kLargeSeconds);
  }
  report->Claim("p99 beside 16 bodies of 31 MiB, " + kind_name + " (ms)",
                Median(all.back().p99_ms), kMostBesideMs, Compare::kAtMost);
}

// `other` is a program of another build; empty if there is none.
void MeasureAllLarge(const std::string& other, Report* report) {
  const Upstream engine;
  std::vector<Passed> all;
  absl::optional<Subject> before;
  if (!other.empty()) before.emplace(Subject::Alone(engine.port(), {}, other));
  if (before) all.push_back({"the other build", &*before});
  const Subject now = Subject::Alone(engine.port());
  all.push_back({"fineserve-proxy", &now});
  for (const Passed& passed : all) RunThreadFirst(passed.subject->pid());
  MeasureLarge("a prompt", LargeBody::kText, all, report);
  MeasureLarge("token ids", LargeBody::kTokens, all, report);
  MeasureLarge("a prompt in chunks", LargeBody::kChunks, all, report);
}

int Run(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(
      argc, argv,
      {"proxy",
       kQuestion,
       {{"--beside", "FILE", "", "a fineserve-proxy of another build"},
        {"--only", "PART", "all", "all, large (bodies) or cost"}}});
  const std::string part = arguments.Text("--only");
  if (part != "all" && part != "large" && part != "cost") {
    fprintf(stderr, "--only takes all, large or cost, not \"%s\"\n",
            part.c_str());
    return 2;
  }
  driver::RaiseDescriptorLimit();
  Report report("proxy");
  const std::string other = arguments.Text("--beside");
  if (part != "cost") MeasureAllLarge(other, &report);
  if (part == "large") return Finish(report, arguments);
  const Bench bench(other);
  bench.MeasureMemory(&report);
  for (const Kind kind : {Kind::kPlain, Kind::kStream}) {
    for (const int connections : {1, 32, 256}) {
      Tell(bench.MeasureCell(kind, connections), MostOf(kind, connections),
           &report);
    }
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Run(argc, argv); }
