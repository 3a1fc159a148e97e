// Measures a load that shifts between models, with and without replanning: see
// kQuestion.

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/replan/moves.h"
#include "bench/replan/planned_day.h"
#include "bench/replan/planned_fleet.h"
#include "bench/report/report.h"
#include "bench/serving/clients.h"
#include "bench/serving/fleet_service.h"
#include "bench/soak/interrupt.h"
#include "daemon/fleet/config/profile_file.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/rates.h"

namespace fineserve::bench {
namespace {

// The first placement of the models.
struct Placing {
  std::vector<double> expected_rates;  // requests/s, by model
  bool on_one_gpu = false;             // no model may be placed on the second
};

// The whole service as processes: two emulated GPUs with a fineserved each,
// fsctl up, which runs a tinyserve of each model where the plan wants it, and
// fineserve-proxy. All engines are alike, and an engine's weights are tiny, so
// only KV decides which engines fit side by side. All processes end with this
// object. Confined to the thread that creates it.
class PlannedSite {
 public:
  PlannedSite();

  // Starts everything, waits until each model answers, and freezes that plan.
  // If that fails, prints a message on standard error and returns false.
  bool StartFrozen(const Placing& placing);
  // Lets models move from now on. Returns false, after a message, if there is
  // no leader.
  bool Thaw();

  uint16_t port() const { return service_.port(); }
  uint64_t PlanNumber();
  Moves MovesSince(uint64_t plan_number);

 private:
  bool AwaitPlan();
  void WriteProfile(const std::string& model) const;
  // `gpus`: their UUIDs.
  stage::FleetText FleetOf(const Placing& placing,
                           std::vector<std::string> gpus) const;

  FleetService service_;
};

constexpr unsigned kPauseUs = 100'000;

using Fleet = PlannedFleet;

PlannedSite::PlannedSite()
    : service_("replan", {Fleet::kGpus, Fleet::kMemoryMib, Fleet::kPoolMib,
                          Fleet::kSlabMib}) {}

bool PlannedSite::StartFrozen(const Placing& placing) {
  const std::vector<std::string> gpus = service_.FindGpus();
  if (gpus.empty()) return false;
  for (const std::string& model : Fleet::Models()) WriteProfile(model);
  if (!service_.Start(FleetOf(placing, gpus)) || !AwaitPlan() ||
      !service_.AwaitModels(port(), Fleet::Models())) {
    return false;
  }
  return !service_.Fsctl({"plan", "--freeze"}).empty() ||
         service_.Fail("the plan cannot freeze");
}

bool PlannedSite::Thaw() {
  return !service_.Fsctl({"plan", "--thaw"}).empty() ||
         service_.Fail("the plan cannot thaw");
}

uint64_t PlannedSite::PlanNumber() {
  return bench::PlanNumber(service_.Fsctl({"plan", "--json"}));
}

Moves PlannedSite::MovesSince(uint64_t plan_number) {
  return MovesIn(service_.Fsctl({"plan", "--history", "200", "--json"}),
                 plan_number);
}

bool PlannedSite::AwaitPlan() {
  const bool planned = process::Eventually([&] {
    usleep(kPauseUs);  // fsctl is a process each time
    return Interrupted() || IsAtRest(service_.Fsctl({"plan", "--json"}));
  });
  return (planned && !Interrupted()) ||
         service_.Fail("there is no plan; " + service_.About());
}

void PlannedSite::WriteProfile(const std::string& model) const {
  std::ofstream(service_.Path(model + ".toml"))
      << config::ProfileText(Fleet::Profile(model));
}

stage::FleetText PlannedSite::FleetOf(const Placing& placing,
                                      std::vector<std::string> gpus) const {
  if (placing.on_one_gpu) gpus.resize(1);
  stage::FleetText fleet;
  fleet.Proxy({{"without_daemon", "fail_closed"}, {"drain", 1}}, port());
  fleet.Table("[planner]", {{"period", Fleet::kPeriod},
                            {"window", Fleet::kWindow},
                            {"least_gain", Fleet::kLeastGain},
                            {"cool_down", Fleet::kCoolDown},
                            {"start", Fleet::kStart},
                            {"drain", Fleet::kDrain}});
  for (size_t m = 0; m < Fleet::Models().size(); ++m) {
    const std::string name = Fleet::Models()[m];
    const auto expected = stage::TomlValue::InlineTable(
        {{"rate", placing.expected_rates[m]},
         {"prompt_tokens", Fleet::kLengths.input},
         {"output_tokens", Fleet::kLengths.output}});
    fleet.Model(name, {{"slo_ttft_ms", 1000 * Fleet::kSloTtft},
                       {"max_batch", Fleet::kMostSequences},
                       {"chunk_tokens", Fleet::kChunkTokens},
                       {"profile", name + ".toml"},
                       {"expected", expected}});
    const std::vector<std::string> command = process::Words(absl::StrCat(
        FleetService::Tinyserve(), " --view --model ", name,
        " --port {port} --max-model-len ", Fleet::kLongestTokens, " --page ",
        Fleet::kPageKib, "KiB --block-tokens ", Fleet::kBlockTokens,
        " --max-num-seqs ", Fleet::kMostSequences, " --max-num-batched-tokens ",
        Fleet::kChunkTokens, " --step-base-us ", Fleet::kBaseUs,
        " --step-token-us ", Fleet::kTokenUs, " --step-sequence-us ",
        Fleet::kSequenceUs));
    fleet.Engine(name, name, process::FreePorts(Fleet::kGpus),
                 {{"gpus", gpus}, {"command", command}});
  }
  return fleet;
}

constexpr char kQuestion[] =
    R"(How many first tokens come on time if models move while the load shifts?

The processes are real: two emulated GPUs with a fineserved each, fsctl up with
a [planner], tinyserve engines under the preload, fineserve-proxy, and loadgen's
code in this one. Three models have a place on each GPU. Their rates follow
the day that ServeGen published of deepseek-r1, the model there whose nights
differ most from its days (from 0.27 to 2.66 of its mean), each model 8 hours
ahead of the one before, sped up: by default the day takes 8 minutes.
Prompts have 200 tokens, answers 40; steps take as long as a large model's, so
that KV, not the host's CPU, is what a GPU lacks. In its busiest hour a model
could use more than a GPU's KV by itself (--busiest); two of three share a GPU,
and which should be alone changes with the hour. If KV were a fluid, the best fixed
placement would serve 88 % of this load, the best of each moment 97 %.

Three ways, with the same arrivals: the plan made for the mean rates of the run,
frozen; the same plan, let free when the load begins, with period, window and
cool-down at a sixth of what is shipped (1, 10 and 5 s), which is still half an
hour of the day; and all models on one GPU, frozen, to see how much a placement
matters.
On time is a first token within 2 s; what is refused (429) is late. By default
it takes 26 minutes. Two cores are enough: see "host busy".)";

constexpr workload::Slo kSlo = {PlannedFleet::kSloTtft, 0};

struct Way {
  const char* name;
  bool replans;
  bool on_one_gpu;
};
constexpr Way kWays[] = {{"without replanning", false, false},
                         {"with replanning", true, false},
                         {"all on one GPU", false, true}};
constexpr size_t kFrozen = 0, kReplanning = 1;

// The results of all seeds of one way.
struct Cell {
  std::vector<workload::Outcome> outcomes;
  double seconds = 0;
  double most_cpu = 0;
  Moves moves;
  uint64_t plan_number = 0;  // at the end of the last seed

  workload::Summary Summary() const {
    return workload::Summarize(outcomes, seconds);
  }
};

class Comparison {
 public:
  Comparison(const PlannedDay& day, uint64_t seeds)
      : day_(day), seeds_(seeds) {}

  // Runs the ways in turn, so that other load of the host affects all of them.
  // Returns false, after a message, if something does not start or SIGINT came.
  bool Run() {
    for (uint64_t seed = 1; seed <= seeds_; ++seed) {
      for (size_t way = 0; way < std::size(kWays); ++way) {
        if (!RunOnce(way, seed)) return false;
      }
    }
    return true;
  }

  void Tell(Report* report) const {
    for (size_t m = 0; m < day_.mean_rates().size(); ++m) {
      report->Figure(absl::StrCat("model ", PlannedFleet::Models()[m],
                                  ": mean rate (requests/s)"),
                     day_.mean_rates()[m]);
    }
    report->Figure("rate of a model's busiest hour (requests/s)",
                   day_.busiest_rate());
    double unanswered = 0;
    for (size_t way = 0; way < std::size(kWays); ++way) {
      TellCell(kWays[way].name, cells_[way], report);
      unanswered += static_cast<double>(cells_[way].Summary().failed);
    }
    report->Claim("on time with replanning, more than without (points)",
                  100 * (cells_[kReplanning].Summary().attainment -
                         cells_[kFrozen].Summary().attainment),
                  0, Compare::kAtLeast);
    report->Claim("requests without an answer", unanswered, 0,
                  Compare::kAtMost);
  }

 private:
  bool RunOnce(size_t way, uint64_t seed) {
    PlannedSite site;
    if (!site.StartFrozen({day_.mean_rates(), kWays[way].on_one_gpu}) ||
        Interrupted() || !WarmUp(site)) {
      return false;
    }
    const uint64_t first_plan = site.PlanNumber();
    if (kWays[way].replans && !site.Thaw()) return false;
    const RunOutcome r = Send(site.port(), day_.Arrivals(seed),
                              {kSlo, /*timeout_s=*/120, /*progress=*/true});
    CatchInterrupts();
    if (r.interrupted || Interrupted()) return false;
    const Moves moves = site.MovesSince(first_plan);
    Cell& cell = cells_[way];
    cell.plan_number = site.PlanNumber();
    cell.moves.begun += moves.begun;
    cell.moves.undone += moves.undone;
    cell.most_cpu = std::max(cell.most_cpu, r.cpu);
    cell.seconds += r.seconds;
    Say(way, seed, r, moves);
    cell.outcomes.insert(cell.outcomes.end(), r.outcomes.begin(),
                         r.outcomes.end());
    return true;
  }

  // Sends a load from which the proxy and the scheduler learn (bytes a token,
  // κ), and the leader the average demand.
  bool WarmUp(const PlannedSite& site) const {
    const bool interrupted =
        Send(site.port(), day_.WarmUp(), {kSlo}).interrupted;
    CatchInterrupts();
    return !interrupted && !Interrupted();
  }

  static void Say(size_t way, uint64_t seed, const RunOutcome& r,
                  const Moves& moves) {
    const auto s = workload::Summarize(r.outcomes, r.seconds);
    fprintf(stderr,
            "seed %d, %s: %.1f %% of %zu on time, %zu refused, %zu failed, "
            "TTFT p90 %.0f ms, %d moves, %d undone, host %.0f %%\n",
            static_cast<int>(seed), kWays[way].name, 100 * s.attainment,
            s.requests, s.dropped, s.failed, 1000 * s.ttft_s.p90, moves.begun,
            moves.undone, 100 * r.cpu);
  }

  static void TellCell(const std::string& of, const Cell& cell,
                       Report* report) {
    const auto s = cell.Summary();
    report->Figure(of + ": requests", static_cast<double>(s.requests));
    report->Figure(of + ": on time (%)", 100 * s.attainment);
    report->Figure(of + ": decoded (tokens/s)", s.decode_tokens_per_second);
    report->Figure(of + ": TTFT p50 of those answered (ms)",
                   1000 * s.ttft_s.p50);
    report->Figure(of + ": TTFT p90 of those answered (ms)",
                   1000 * s.ttft_s.p90);
    report->Figure(of + ": errors", static_cast<double>(s.failed));
    report->Figure(of + ": refused", static_cast<double>(s.dropped));
    report->Figure(of + ": moves", cell.moves.begun);
    report->Figure(of + ": moves undone", cell.moves.undone);
    report->Figure(of + ": plan number at the end of the last run",
                   static_cast<double>(cell.plan_number));
    report->Figure(of + ": host busy, at most (%)", 100 * cell.most_cpu);
  }

  const PlannedDay day_;
  const uint64_t seeds_;
  Cell cells_[std::size(kWays)];
};

About TheBench() {
  About about = {"replan", kQuestion, PlannedDay::Flags()};
  about.arguments.push_back({"--seeds", "N", "1", "runs of each way"});
  return about;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const auto day = PlannedDay::Read(arguments);
  if (!day.ok()) Die(std::string(day.status().message()));
  CatchInterrupts();
  Report report("replan");
  Comparison comparison(*day, arguments.Count("--seeds"));
  if (!comparison.Run()) return 1;
  comparison.Tell(&report);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
