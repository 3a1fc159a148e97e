// Measures the cost of a lease over several GPUs: see kQuestion.

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/micro/gpu_site.h"
#include "bench/micro/run_first.h"
#include "bench/report/report.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does a lease cost an engine that spans GPUs, beside one on a single GPU?

Four emulated GPUs, each with a fineserved and a pool of its own, and an engine
on one GPU without ranks ("no ranks"), one with a single rank, one on two GPUs
and one on four. In turn each wants one slab more than it has while slabs are
free on all GPUs, waits as an idle engine does, and gives it back. The time from
fs_kv_want to FS_KV_LEASED counts, which is over when every GPU has leased the
slab. The ratios are to the engine with a single rank. Other processes reach the
99th percentile of all leases; by rounds of 100 leases, each with a 99th
percentile of its own, the median of the ratios hardly knows them. A difference
is noise if it is below that of the engine with a single rank between its odd and
its even rounds.

All of this runs before other processes (SCHED_FIFO) where that is permitted.)";

constexpr int kGpus = 4;
constexpr uint64_t kLeasesInTurn = 100;

About TheBench() {
  return {"ranks", kQuestion, {{"--leases", "N", "5000", "for each engine"}}};
}

// A group_engine that obeys lines on its standard input.
class Engine {
 public:
  Engine(const GpuSite& site, const std::string& what,
         const std::vector<std::string>& flags)
      : what_(what),
        process_(process::With({site.Program("group_engine")}, flags),
                 site.UnderPreload(what)) {
    ReadLine("ready");
  }

  const std::string& what() const { return what_; }
  // The times by round, each in the order of the leases.
  const std::vector<std::vector<double>>& rounds_us() const {
    return rounds_us_;
  }

  // One round.
  void Lease(uint64_t count) {
    process_.Tell(absl::StrCat("lease ", count));
    std::istringstream words(ReadLine("ok "));
    std::vector<double>& us = rounds_us_.emplace_back();
    for (double each; words >> each;) us.push_back(each);
  }

 private:
  // Returns the rest of the next line that begins with `prefix`.
  std::string ReadLine(const std::string& prefix) {
    for (;;) {
      const std::string line = process_.ReadLine();
      if (line.rfind(prefix, 0) == 0) return line.substr(prefix.size());
      if (line.empty() || line.rfind("error", 0) == 0) {
        Die(absl::StrCat(what_, ": ", line, "; ", process_.About()));
      }
    }
  }

  const std::string what_;
  std::vector<std::vector<double>> rounds_us_;
  stage::Process process_;
};

// Returns the values of all rounds, or of every second one.
std::vector<double> Pooled(const Engine& engine, size_t first = 0,
                           size_t step = 1) {
  std::vector<double> pooled;
  for (size_t i = first; i < engine.rounds_us().size(); i += step) {
    const std::vector<double>& round = engine.rounds_us()[i];
    pooled.insert(pooled.end(), round.begin(), round.end());
  }
  return pooled;
}

// Returns the median over the rounds of the ratio of one engine's P99 to the
// other's.
double MedianRatioOfP99(const Engine& one, const Engine& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < one.rounds_us().size(); ++i) {
    ratios.push_back(Percentile(one.rounds_us()[i], 99) /
                     Percentile(other.rounds_us()[i], 99));
  }
  return Percentile(ratios, 50);
}

std::vector<std::unique_ptr<Engine>> StartEngines(const GpuSite& site) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> kinds = {
      {"no ranks", {"--alone"}},
      {"1 GPU", {"--gpus", "0"}},
      {"2 GPUs", {"--gpus", "0,1"}},
      {"4 GPUs", {"--gpus", "0,1,2,3"}}};
  std::vector<std::unique_ptr<Engine>> engines;
  for (const auto& [what, flags] : kinds) {
    engines.push_back(std::make_unique<Engine>(site, what, flags));
  }
  return engines;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const uint64_t leases = arguments.Count("--leases");
  Report report("ranks");
  report.Figure("runs before all others (1: yes)", RunFirst() ? 1 : 0);
  setenv("EMUCUDA_DEVICES", std::to_string(kGpus).c_str(), 1);
  GpuSite site;
  const std::vector<std::string> pool = {"--pool", "32MiB", "--slab", "2MiB"};
  site.StartDaemon(pool);
  for (int gpu = 1; gpu < kGpus; ++gpu) {
    std::vector<std::string> flags = pool;
    flags.insert(flags.end(), {"--gpu", absl::StrCat("emulated:", gpu)});
    site.AddDaemon(flags);
  }
  const auto engines = StartEngines(site);
  for (uint64_t done = 0; done < leases; done += kLeasesInTurn) {
    for (const auto& engine : engines) {
      engine->Lease(std::min(kLeasesInTurn, leases - done));
    }
  }
  const Engine& one = *engines[1];
  const Engine& four = *engines[3];
  for (const double percent : {50.0, 99.0}) {
    const double reference = Percentile(Pooled(one), percent);
    for (const auto& engine : engines) {
      const double us = Percentile(Pooled(*engine), percent);
      const std::string name = absl::StrCat(engine->what(), ", P", percent);
      report.Figure(absl::StrCat(name, " (us)"), us);
      report.Figure(absl::StrCat(name, ", to 1 GPU's (ratio)"), us / reference);
    }
  }
  for (const auto& engine : engines) {
    report.Figure(absl::StrCat(engine->what(),
                               ", P99 to 1 GPU's, median of rounds (ratio)"),
                  MedianRatioOfP99(*engine, one));
  }
  if (one.rounds_us().size() > 1) {
    report.Figure(
        "1 GPU, P99 of odd to P99 of even rounds (ratio)",
        Percentile(Pooled(one, 1, 2), 99) / Percentile(Pooled(one, 0, 2), 99));
  }
  report.Claim("P99 over 4 GPUs, to one GPU's",
               Percentile(Pooled(four), 99) / Percentile(Pooled(one), 99), 2,
               Compare::kAtMost);
  report.Claim("the same by rounds, median", MedianRatioOfP99(four, one), 2,
               Compare::kAtMost);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
