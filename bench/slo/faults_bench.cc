// Measures a load while a replica fails: see kQuestion.

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "bench/report/report.h"
#include "bench/serving/clients.h"
#include "bench/serving/fleet_service.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/workload/arrivals.h"
#include "tools/openai/client.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What do clients notice while one of two replicas fails?

The processes are real: a fineserved on each of two emulated GPUs, fsctl up with
a tinyserve on each, fineserve-proxy, and loadgen's code in this process. The
load (Poisson, answers of half a second) is 1.3 times what one engine can take
and never stops. A few seconds after its begin the second engine errs (every
second answer is 500), resets its connections, hangs (SIGSTOP) or dies, after
which fsctl up starts it again; one that hangs is left alone. Beside them:
nothing fails, and a fleet that has the first engine alone, which says what the
healthy one can do.

Counted are the requests that come after the fault. How long one waits is until
its first token, or until it is refused or fails; how long those waited that
were under way when the engine failed is shown apart. Streams that had begun on
an engine that hangs end with proxy.engine_timeout. Runs during which the host
was busier than 80 % are shown, but claims leave them out.)";

constexpr double kWarmSeconds = 4, kFaultAt = 6;  // after a run's begin
constexpr double kSloSeconds = 1;
constexpr uint32_t kBatch = 16, kInput = 60, kOutput = 20;
constexpr double kBaseUs = 25'000, kTokenUs = 50, kSequenceUs = 60;
constexpr double kLoad = 1.3;  // of one engine
constexpr double kMostAfterSlo = 2, kMostLostPercent = 2;
constexpr double kMostBusy = 0.8;
constexpr char kModel[] = "m";
const Gpus kGpus = {/*count=*/2, /*memory_mib=*/192, /*pool_mib=*/80,
                    /*slab_mib=*/2};

struct Case {
  const char* name;
  const char* fault;  // of tinyserve; empty: none
  int engines = 2;
};
constexpr Case kCases[] = {{"one engine alone", "", 1}, {"no fault", ""},
                           {"errs", "error"},           {"resets", "reset"},
                           {"hangs", "hang"},           {"dies", "die"}};

// Returns the requests per second that one engine can handle.
double RateOfOne() {
  const double step_s = 1e-6 * (kBaseUs + kBatch * kSequenceUs);
  const double prompts_s = 1e-6 * kInput * kTokenUs;
  return kBatch / (kOutput * (step_s + prompts_s * kBatch / kOutput));
}

class Site {
 public:
  explicit Site(int engines) : service_("faults", kGpus) {
    for (int i = 0; i < engines; ++i) ports_.push_back(process::FreePort());
  }

  // Returns false, after a message, if something does not start.
  bool Start() {
    const std::vector<std::string> gpus = service_.FindGpus();
    if (gpus.empty() || !service_.Start(Fleet(gpus))) return false;
    for (const uint16_t port : ports_) {
      if (!service_.AwaitModels(port, {kModel})) return false;
    }
    return service_.AwaitModels(service_.port(), {kModel});
  }
  uint16_t port() const { return service_.port(); }

  // Makes the last engine fail in this way.
  void Fail(const std::string& fault) const {
    boost::asio::io_context context;
    openai::Client client(
        &context,
        {"127.0.0.1", absl::StrCat(ports_.back()), "/fault/" + fault, ""},
        std::chrono::seconds(1));
    boost::asio::co_spawn(context, client.Post("{}", {}),
                          boost::asio::detached);
    context.run();
  }

 private:
  stage::FleetText Fleet(const std::vector<std::string>& gpus) const {
    stage::FleetText fleet;
    fleet.Proxy({{"drain", 1}}, service_.port());
    fleet.Model(kModel, {{"slo_ttft_ms", 1000 * kSloSeconds},
                         {"max_batch", kBatch},
                         {"profile", stage::TomlValue::Profile(
                                         kBaseUs, kTokenUs, kSequenceUs)}});
    for (size_t i = 0; i < ports_.size(); ++i) {
      const std::vector<std::string> command = process::Words(absl::StrCat(
          FleetService::Tinyserve(), " --view --model ", kModel, " --port ",
          ports_[i], " --max-model-len 512 --max-num-seqs ", kBatch,
          " --checked-blocks 0 --step-base-us ", kBaseUs, " --step-token-us ",
          kTokenUs, " --step-sequence-us ", kSequenceUs));
      fleet.Engine(
          absl::StrCat("e", i), kModel, ports_[i],
          {{"gpu", gpus[i]}, {"restart_after", 0}, {"command", command}});
    }
    return fleet;
  }

  FleetService service_;
  std::vector<uint16_t> ports_;
};

struct Result {
  workload::Summary after;  // of requests that came after the fault
  double longest_s = 0;     // that one of them waited for its answer's begin
  double in_flight_s = 0;   // the same of those that came before it
  double host_busy = 0;
};

// Returns the time until the answer's first token, or until its end if it has
// none.
double WaitOf(const workload::Outcome& o) {
  const double begins_s = o.first_token_s > 0 ? o.first_token_s : o.end_s;
  return begins_s - o.begin_s;
}

// Returns nullopt, after a message, if something does not start.
absl::optional<Result> Measure(const Case& c, double seconds, uint64_t seed) {
  Site site(c.engines);
  if (!site.Start()) return absl::nullopt;
  const std::vector<workload::Lengths> lengths = {{kInput, kOutput}};
  const auto load = [&](double times, double for_s, uint64_t of) {
    return workload::Poisson({{kModel, times * RateOfOne()}}, for_s, lengths,
                             of);
  };
  Send(site.port(), load(0.5, kWarmSeconds, seed), {{60, 0}});
  std::thread fault([&] {
    usleep(static_cast<useconds_t>(1e6 * kFaultAt));
    if (c.fault[0] != '\0') site.Fail(c.fault);
  });
  const RunOutcome run = Send(
      site.port(), load(kLoad, kFaultAt + seconds, seed), {{kSloSeconds, 0}});
  fault.join();
  if (run.interrupted) return absl::nullopt;
  Result result;
  result.host_busy = run.cpu;
  std::vector<workload::Outcome> after;
  for (const workload::Outcome& o : run.outcomes) {
    double* const longest =
        o.begin_s >= kFaultAt ? &result.longest_s : &result.in_flight_s;
    *longest = std::max(*longest, WaitOf(o));
    if (o.begin_s >= kFaultAt) after.push_back(o);
  }
  result.after = workload::Summarize(after, seconds);
  return result;
}

std::string Row(const Case& c, const Result& r) {
  const workload::Summary& s = r.after;
  return absl::StrFormat(
      "%-18s %5d requests, %5.1f %% on time (%.1f/s), %3d refused, %2d failed, "
      "longest wait %.2f s (before the fault: %.2f), host %.0f %%%s\n",
      c.name, static_cast<int>(s.requests), 100 * s.attainment, s.goodput,
      static_cast<int>(s.dropped), static_cast<int>(s.failed), r.longest_s,
      r.in_flight_s, 100 * r.host_busy,
      r.host_busy > kMostBusy ? ": too busy, does not count" : "");
}

void Tell(const Case& c, const Result& r, const Result& healthy,
          Report* report) {
  const std::string of = std::string(c.name) + ": ";
  report->Figure(of + "on time (%)", 100 * r.after.attainment);
  report->Figure(of + "goodput (requests/s)", r.after.goodput);
  report->Figure(of + "failed", static_cast<double>(r.after.failed));
  report->Figure(of + "longest wait (s)", r.longest_s);
  report->Figure(of + "longest wait of those before the fault (s)",
                 r.in_flight_s);
  report->Figure(of + "host busy (%)", 100 * r.host_busy);
  if (c.fault[0] == '\0' ||
      std::max(r.host_busy, healthy.host_busy) > kMostBusy)
    return;
  report->Claim(of + "longest wait (s)", r.longest_s,
                kSloSeconds + kMostAfterSlo, Compare::kAtMost);
  report->Claim(of + "goodput over that of the healthy engine (%)",
                100 * r.after.goodput / healthy.after.goodput,
                100 - kMostLostPercent, Compare::kAtLeast);
}

About TheBench() {
  return {"faults",
          kQuestion,
          {{"--faults", "LIST", "errs,resets,hangs,dies", "which of them"},
           {"--seconds", "N", "20", "of load under each fault"},
           {"--seed", "N", "1", "of the requests"}}};
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  Report report("faults");
  absl::optional<Result> healthy;
  const std::vector<std::string> wanted =
      absl::StrSplit(arguments.Text("--faults"), ',');
  for (const Case& c : kCases) {
    const bool is_wanted =
        std::find(wanted.begin(), wanted.end(), c.name) != wanted.end();
    if (c.fault[0] != '\0' && !is_wanted) continue;
    const auto r =
        Measure(c, arguments.Number("--seconds"), arguments.Count("--seed"));
    if (!r) return 1;
    if (!healthy) healthy = r;
    fputs(Row(c, *r).c_str(), stderr);
    Tell(c, *r, *healthy, &report);
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
