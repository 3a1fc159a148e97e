// The cost of following requests: see kQuestion.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/micro/process_usage.h"
#include "bench/proxy/load.h"
#include "bench/proxy/subject.h"
#include "bench/proxy/upstream.h"
#include "bench/report/report.h"
#include "kernels/driver/descriptor_limit.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does it cost a proxied request that it can be followed?

There is one engine that costs nothing, and fineserve-proxies that differ in
their flags only: nothing on; the ring of recent requests; the access log to a
file; tracing to a collector at 0, 1 and 100 % sampling; everything. Each round
runs them in turn, so that a slow phase of the machine affects all. A figure is
the median over the rounds of a proxy's CPU per request, all threads, over that
of the first proxy in the same round. "nothing on, again" is a second proxy like
the first: what it differs by is noise.)";

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 1;
// Limits on the ratio: for the ring, which is on by default, and for everything
// at once.
constexpr double kMostRing = 1.05;
constexpr double kMostAll = 1.35;

struct Way {
  std::string name;
  Subject subject;
};

// The figures of one way, by round.
struct Series {
  std::vector<double> cpu_us, ratio, p50_us;
};

class Bench {
 public:
  Bench() {
    const std::vector<std::string> nothing = {"--recent-requests", "0"};
    const std::string url =
        "http://127.0.0.1:" + std::to_string(collector_.port());
    const auto traced = [&](const std::string& rate) {
      return std::vector<std::string>{"--recent-requests", "0",
                                      "--otlp-endpoint",   url,
                                      "--trace-sample",    rate};
    };
    Add("nothing on", nothing);
    Add("nothing on, again", nothing);
    Add("ring", {});
    Add("access log",
        {"--recent-requests", "0", "--access-log", folder_.path() + "/log"});
    Add("tracing, 0 %", traced("0"));
    Add("tracing, 1 %", traced("0.01"));
    Add("tracing, 100 %", traced("1"));
    Add("everything", {"--access-log", folder_.path() + "/log-of-all",
                       "--otlp-endpoint", url});
  }

  std::vector<std::pair<std::string, Series>> Measure(Kind kind,
                                                      int connections) const {
    std::vector<std::pair<std::string, Series>> all;
    for (const Way& way : ways_) all.emplace_back(way.name, Series());
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < ways_.size(); ++i) {
        const Subject& subject = ways_[i].subject;
        const double before_s = CpuSecondsOf(subject.pid());
        const Load load =
            RunLoad(subject.port(), kind, connections, kRoundSeconds);
        const double cpu_us = (CpuSecondsOf(subject.pid()) - before_s) * 1e6 /
                              static_cast<double>(load.requests);
        Series& series = all[i].second;
        series.cpu_us.push_back(cpu_us);
        series.ratio.push_back(cpu_us / all[0].second.cpu_us.back());
        series.p50_us.push_back(load.LatencyUs(0.5));
      }
    }
    return all;
  }

 private:
  void Add(const std::string& name, const std::vector<std::string>& flags) {
    ways_.push_back({name, Subject::Alone(engine_.port(), flags)});
  }

  const process::TemporaryFolder folder_;
  const Upstream engine_;
  const Upstream collector_;  // answers any POST with 200
  std::vector<Way> ways_;
};

void Tell(const std::string& cell,
          const std::vector<std::pair<std::string, Series>>& all,
          Report* report) {
  std::map<std::string, double> ratios;
  for (const auto& [name, series] : all) {
    const std::string at = cell + ": " + name;
    ratios[name] = Median(series.ratio);
    report->Figure(at + ", CPU (us/request)", Median(series.cpu_us));
    report->Figure(at + ", CPU over nothing on", ratios[name]);
    report->Figure(at + ", p50 (us)", Median(series.p50_us));
  }
  report->Claim("CPU of the ring over nothing on, " + cell, ratios["ring"],
                kMostRing, Compare::kAtMost);
  report->Claim("CPU of everything over nothing on, " + cell,
                ratios["everything"], kMostAll, Compare::kAtMost);
}

int Run(int argc, char** argv) {
  const Arguments arguments =
      Arguments::ReadOrExit(argc, argv, {"follow", kQuestion});
  driver::RaiseDescriptorLimit();
  const Bench bench;
  Report report("follow");
  for (const auto& [kind, word] :
       {std::pair{Kind::kPlain, "plain"}, {Kind::kStream, "stream"}}) {
    for (const int connections : {1, 32}) {
      const std::string cell =
          std::string(word) + ", " + std::to_string(connections);
      Tell(cell, bench.Measure(kind, connections), &report);
    }
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Run(argc, argv); }
