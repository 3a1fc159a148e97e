// Measures the whole service under its SLOs: see kQuestion.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/micro/gpu_site.h"
#include "bench/report/report.h"
#include "bench/serving/clients.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/fleet_text.h"
#include "tools/lab/workload/arrivals.h"

namespace fineserve::bench {
namespace {

using process::FreePort;

// The whole service as processes: fineserved on an emulated GPU with one pool,
// two tinyserve engines of different formats under the preload ("fp16": one
// plane of 64 KiB pages, "fp8": four of 8 KiB), and fineserve-proxy. All end
// with this object. A failure ends the bench. Not thread-safe.
class ServingSite {
 public:
  // The duration of an engine's step in µs, which the scheduler also knows.
  static constexpr double kBaseUs = 20'000;
  static constexpr double kTokenUs = 300;
  static constexpr double kSequenceUs = 60;
  static constexpr uint32_t kChunkTokens = 512;
  static constexpr uint32_t kLongestTokens = 6000;  // prompt and answer

  explicit ServingSite(const std::string& policy);
  ServingSite(const ServingSite&) = delete;
  ServingSite& operator=(const ServingSite&) = delete;
  ~ServingSite();

  static std::vector<std::string> Models() { return {"fp16", "fp8"}; }
  uint16_t port() const { return proxy_port_; }

 private:
  void StartEngine(const std::string& model, uint16_t port,
                   const std::string& format);

  GpuSite gpu_;
  std::vector<std::unique_ptr<stage::Process>> processes_;  // in start's order
  const uint16_t proxy_port_;
};

ServingSite::ServingSite(const std::string& policy) : proxy_port_(FreePort()) {
  const uint16_t fp16_port = FreePort(), fp8_port = FreePort();
  stage::FleetText text;
  text.Proxy({{"without_daemon", "fail_closed"}, {"drain", 1}}, proxy_port_);
  text.Table("[scheduler]", {{"policy", policy}});
  const auto add = [&](const std::string& name, uint16_t port, int bytes) {
    text.Model(name, {{"slo_ttft_ms", 1000},
                      {"chunk_tokens", kChunkTokens},
                      {"max_batch", 64},
                      {"kv_token_bytes", bytes},
                      {"profile", stage::TomlValue::Profile(kBaseUs, kTokenUs,
                                                            kSequenceUs)}});
    text.Engine(name, name, port);
  };
  add("fp16", fp16_port, 4096);
  add("fp8", fp8_port, 2048);
  const std::string fleet = gpu_.folder() + "/fleet.toml";
  text.WriteTo(fleet);
  gpu_.StartDaemon({"--pool", "384MiB", "--slab", "8MiB", "--planes", "4",
                    "--fleet", fleet});
  StartEngine("fp16", fp16_port, "--page 64KiB");
  StartEngine("fp8", fp8_port, "--planes 4 --page 8KiB");
  processes_.push_back(gpu_.LaunchProgram(
      {"fineserve-proxy", "--fleet", fleet, "--log-level", "error"}));
}

// Ends the proxy before the processes that it uses.
ServingSite::~ServingSite() {
  while (!processes_.empty()) processes_.pop_back();
}

void ServingSite::StartEngine(const std::string& model, uint16_t port,
                              const std::string& format) {
  processes_.push_back(gpu_.LaunchPreloaded(
      process::Words(absl::StrCat(
          "tinyserve --view --model ", model, " --port ", port,
          " --max-num-batched-tokens ", kChunkTokens, " --max-model-len ",
          kLongestTokens, " --step-base-us ", kBaseUs, " --step-token-us ",
          kTokenUs, " --step-sequence-us ", kSequenceUs, " ", format)),
      {{"FINESERVE_ENGINE", model}}));
}

constexpr char kQuestion[] =
    R"(How many first tokens come on time, and which policy keeps more on time?

The processes are real: loadgen's code in this one, fineserve-proxy, a
fineserved that admits, and two tinyserve engines under the preload on the pool
of one emulated GPU. FineServe's policy is compared with Moore-Hodgson (Prism)
and FCFS on ShareGPT lengths (first turn; answers cut to 60 tokens and prompts
to 4,000, so that a run is short and the emulated device keeps up), Poisson
arrivals, half of the requests for each model. Drops are misses.

The SLO is the basis "fs" (P95 of TTFT, one request at a time, of lengths spread
over the set; measured first) times a scale, sent in the requests' header. Rates
are of both models together. Steps take as long as on a slow GPU, because these
processes share few cores; the engines' steps do not slow each other down, so
that some 24 requests/s fill both. A run during which the host's CPUs were
busier than 80 % is void: it is reported, but not counted. With several seconds
between runs a sweep takes about 25 minutes.)";

constexpr const char* kPolicies[] = {"fineserve", "moore-hodgson", "fcfs"};
constexpr double kRates[] = {18, 26, 40};
constexpr double kScales[] = {2, 4};
constexpr double kWarmRate = 12, kWarmSeconds = 8;
constexpr double kMostCpu = 0.8;
constexpr uint32_t kMostInput = 4000, kMostOutput = 60;

using Lengths = std::vector<workload::Lengths>;

RunOutcome SendTo(const ServingSite& site, const workload::Trace& trace,
                  workload::Slo slo) {
  return Send(site.port(), trace, {slo});
}

// Waits until both models answer, then sends a load from which the proxy and
// the scheduler learn (bytes a token, κ).
void AwaitReady(const ServingSite& site, const Lengths& lengths) {
  if (!AwaitAnswers(site.port(), ServingSite::Models())) {
    Die("the engines did not start in time");
  }
  SendTo(site,
         workload::Poisson({{"fp16", kWarmRate / 2}, {"fp8", kWarmRate / 2}},
                           kWarmSeconds, lengths, /*seed=*/0),
         {60, 0});
}

// Picks `count` lengths, evenly spaced in order of prompt length, so that the
// number of very long prompts does not depend on chance.
Lengths Spread(Lengths lengths, size_t count) {
  std::sort(lengths.begin(), lengths.end(),
            [](const auto& a, const auto& b) { return a.input < b.input; });
  Lengths spread;
  for (size_t i = 0; i < count; ++i) {
    spread.push_back(lengths[(2 * i + 1) * lengths.size() / (2 * count)]);
  }
  return spread;
}

// Measures the P95 of the TTFT of requests that come one after the other.
double MeasureBase(const Lengths& lengths) {
  const ServingSite site("fcfs");
  AwaitReady(site, lengths);
  std::vector<workload::Outcome> all;
  uint32_t model = 0;
  for (workload::Lengths l : Spread(lengths, 60)) {
    l.output = 1;
    workload::Trace one;
    one.models = ServingSite::Models();
    one.arrivals = {{0, model, l}};
    model = 1 - model;
    for (const auto& o : SendTo(site, one, {60, 0}).outcomes) all.push_back(o);
  }
  return workload::SloFrom(*workload::FindSloBasis("fs"), all, 1).ttft_s;
}

// The results of all seeds of one setting under one policy.
struct Cell {
  std::vector<workload::Outcome> outcomes;
  double seconds = 0;
  int counted = 0;
  double Attainment() const {
    return 100 * workload::Summarize(outcomes, seconds).attainment;
  }
};
using Key = std::tuple<double, double, std::string>;  // rate, scale, policy

class Sweep {
 public:
  Sweep(const Lengths& lengths, double seconds, uint64_t seeds)
      : lengths_(lengths),
        seconds_(seconds),
        seeds_(seeds),
        base_s_(MeasureBase(lengths)) {}

  // Runs the policies in turn, so that other load of the host affects all of
  // them.
  void Run() {
    fprintf(stderr, "SLO base: %.0f ms\n", 1000 * base_s_);
    for (uint64_t seed = 1; seed <= seeds_; ++seed) {
      for (const char* policy : kPolicies) {
        const ServingSite site(policy);
        AwaitReady(site, lengths_);
        for (const double rate : kRates) {
          for (const double scale : kScales) {
            RunOnce(site, {rate, scale, policy}, seed);
          }
        }
      }
    }
  }

  void Tell(Report* report) const {
    report->Figure("SLO base fs, P95 TTFT of one at a time (ms)",
                   1000 * base_s_);
    for (const auto& [key, cell] : cells_) TellCell(key, cell, report);
    report->Figure("void runs (host busier than 80 %)", void_runs_);
    report->Figure("busiest counted run (% of the host)", 100 * most_cpu_);
    Claim("FCFS", "fcfs", 20, report);
    Claim("Moore-Hodgson", "moore-hodgson", 0, report);
  }

 private:
  void RunOnce(const ServingSite& site, const Key& key, uint64_t seed) {
    const auto& [rate, scale, policy] = key;
    const workload::Trace trace = workload::Poisson(
        {{"fp16", rate / 2}, {"fp8", rate / 2}}, seconds_, lengths_, seed);
    const RunOutcome r = SendTo(site, trace, {scale * base_s_, 0});
    const auto s = workload::Summarize(r.outcomes, r.seconds);
    fprintf(stderr,
            "seed %d, %s, %g requests/s, scale %g: %.1f %% on time, %zu of %zu "
            "dropped, %zu failed, host %.0f %%\n",
            static_cast<int>(seed), policy.c_str(), rate, scale,
            100 * s.attainment, s.dropped, s.requests, s.failed, 100 * r.cpu);
    if (r.cpu > kMostCpu) {
      ++void_runs_;
      return;
    }
    most_cpu_ = std::max(most_cpu_, r.cpu);
    Cell& cell = cells_[key];
    cell.outcomes.insert(cell.outcomes.end(), r.outcomes.begin(),
                         r.outcomes.end());
    cell.seconds += r.seconds;
    ++cell.counted;
  }

  static void TellCell(const Key& key, const Cell& cell, Report* report) {
    const auto& [rate, scale, policy] = key;
    const auto of =
        absl::StrFormat("%g requests/s, scale %g, %s", rate, scale, policy);
    const auto s = workload::Summarize(cell.outcomes, cell.seconds);
    report->Figure(of + ": on time (%)", cell.Attainment());
    report->Figure(of + ": goodput (requests/s)", s.goodput);
    report->Figure(of + ": dropped (%)", 100.0 *
                                             static_cast<double>(s.dropped) /
                                             static_cast<double>(s.requests));
    const auto deciles = workload::AttainmentByLengthDecile(cell.outcomes);
    for (size_t d = 0; d < deciles.size(); ++d) {
      report->Figure(absl::StrCat(of, ": length decile ", d + 1, " (%)"),
                     100 * deciles[d]);
    }
  }

  // Uses the settings for which the same number of runs of both counts; claims
  // nothing if there are none.
  void Claim(const char* name, const std::string& other, double points,
             Report* report) const {
    std::vector<double> gains;
    for (const auto& [key, cell] : cells_) {
      const auto& [rate, scale, policy] = key;
      const auto theirs = cells_.find({rate, scale, other});
      if (policy != "fineserve" || theirs == cells_.end()) continue;
      if (cell.counted != theirs->second.counted) continue;
      gains.push_back(cell.Attainment() - theirs->second.Attainment());
    }
    if (gains.empty()) {
      fprintf(stderr, "slo: no setting counts for both fineserve and %s\n",
              other.c_str());
      return;
    }
    report->Claim(absl::StrCat("most gained over ", name, " (points)"),
                  *std::max_element(gains.begin(), gains.end()), points,
                  Compare::kAtLeast);
  }

  const Lengths& lengths_;
  const double seconds_;
  const uint64_t seeds_;
  const double base_s_;
  std::map<Key, Cell> cells_;
  int void_runs_ = 0;
  double most_cpu_ = 0;
};

About TheBench() {
  return {"slo",
          kQuestion,
          {{"--data", "DIR", "../shared/data", "folder of the real lengths"},
           {"--seconds", "N", "20", "length of each run"},
           {"--seeds", "N", "3", "runs of each setting"}}};
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  auto lengths = workload::ReadLengths(
      arguments.Text("--data") +
      "/lengths_sharegpt_firstturn_llama2tok_even.csv.gz");
  if (!lengths.ok()) {
    fprintf(stderr, "slo: %s; set the folder with --data\n",
            std::string(lengths.status().message()).c_str());
    return 1;
  }
  for (workload::Lengths& l : *lengths) {
    l.input = std::min(l.input, kMostInput);
    l.output = std::min(l.output, kMostOutput);
  }
  Report report("slo");
  Sweep sweep(*lengths, arguments.Number("--seconds"),
              arguments.Count("--seeds"));
  sweep.Run();
  sweep.Tell(&report);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
