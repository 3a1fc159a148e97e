// Runs the day of bench replan in the simulator, over many seeds: see
// kQuestion.

#include <stdio.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/replan/planned_day.h"
#include "bench/replan/planned_fleet.h"
#include "bench/report/interval.h"
#include "bench/report/report.h"
#include "daemon/base/log/log.h"
#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How sure is it that more first tokens come on time if models move?

The fleet and the day of scripts/bench replan, in virtual time with the leader,
the hand, the scheduler, the pool and the proxy's choice that ship: the plan made
for the mean rates of the day, frozen, and the same plan let free, each with the
same arrivals, seed by seed. Then the same again with places that rest off the
GPU while they are off, and so are back at once. Means have their 95 % interval.
Inputs, not results: engines start in --start seconds, do not slow each other
down, and a slab of 8 MiB is filled in 2 ms.)";

using Fleet = PlannedFleet;

// `rests`: whether places that are off rest off the GPU instead of ending.
config::Fleet FleetFor(const std::vector<double>& expected_rates, bool rests) {
  config::Fleet fleet;
  fleet.planner = {true,           fleet.planner.policy, Fleet::kPeriod,
                   Fleet::kWindow, Fleet::kLeastGain,    Fleet::kCoolDown,
                   Fleet::kStart,  Fleet::kDrain};
  for (const std::string& name : Fleet::Models()) {
    config::FleetModel m;
    m.name = name;
    m.slo_ttft_ms = static_cast<uint32_t>(1000 * Fleet::kSloTtft);
    m.max_batch = Fleet::kMostSequences;
    m.chunk_tokens = Fleet::kChunkTokens;
    m.block_tokens = Fleet::kBlockTokens;
    m.kv_token_bytes = Fleet::kTokenBytes;
    m.measured = Fleet::Profile(name);
    m.profile = m.measured->step;
    m.expected_rate = expected_rates[fleet.models.size()];
    m.expected_prompt_tokens = Fleet::kLengths.input;
    m.expected_output_tokens = Fleet::kLengths.output;
    fleet.models.push_back(m);
    for (int gpu = 0; gpu < Fleet::kGpus; ++gpu) {
      config::FleetEngine e;
      e.name = absl::StrCat(name, "-", gpu);
      e.model = name;
      e.gpu = absl::StrCat("GPU-", gpu);
      e.is_place = true;
      e.may_evict = rests;
      fleet.engines.push_back(e);
    }
  }
  return fleet;
}

sim::Site SiteFor(double start_s) {
  sim::Site site;
  site.memory_bytes = uint64_t{Fleet::kMemoryMib} * Fleet::kMib;
  site.pool_bytes = uint64_t{Fleet::kPoolMib} * Fleet::kMib;
  site.slab_bytes = uint64_t{Fleet::kSlabMib} * Fleet::kMib;
  site.slowdown.factors = {1};
  site.pool.fill_us = 2000;
  site.hand.start_us = static_cast<sim::Micros>(1e6 * start_s);
  for (const std::string& name : Fleet::Models()) {
    site.models[name].longest_tokens = Fleet::kLongestTokens;
    site.models[name].bytes_per_token = 5;  // tools/openai/prompt.h
  }
  return site;
}

// Returns a warm-up at the mean rates, followed by the day.
workload::Trace LoadOf(const PlannedDay& planned, uint64_t seed) {
  workload::Trace load = planned.WarmUp();
  const workload::Trace day = planned.Arrivals(seed);
  for (workload::Arrival a : day.arrivals) {
    a.at_s += PlannedDay::kWarmSeconds;
    load.arrivals.push_back(a);
  }
  return load;
}

// By seed.
struct Cell {
  std::vector<double> on_time, refused, failed, moves, undone, requests;
};

// Simulates, and leaves out the warm-up. Returns false, after a message, if the
// world cannot be simulated.
bool Simulate(const sim::World& world, const workload::Trace& trace,
              bool frozen, Cell* cell) {
  const auto model_of = sim::ModelsOf(world, trace);
  if (!model_of.ok()) return false;
  sim::RunOptions options;
  options.frozen = frozen;
  auto result = sim::Run(world, trace, *model_of, options);
  if (!result.ok()) {
    fprintf(stderr, "replan_sim: %s\n",
            std::string(result.status().message()).c_str());
    return false;
  }
  std::vector<workload::Outcome> day;
  for (const workload::Outcome& o : result->outcomes) {
    if (o.begin_s >= PlannedDay::kWarmSeconds) day.push_back(o);
  }
  const auto s =
      workload::Summarize(day, result->seconds - PlannedDay::kWarmSeconds);
  cell->requests.push_back(static_cast<double>(s.requests));
  cell->on_time.push_back(100 * s.attainment);
  cell->refused.push_back(static_cast<double>(s.dropped));
  cell->failed.push_back(static_cast<double>(s.failed));
  cell->moves.push_back(result->plan->moves);
  cell->undone.push_back(result->plan->moves_undone);
  return true;
}

void Tell(const std::string& what, const Interval& i, Report* report) {
  report->Figure(what, i.mean);
  report->Figure(what + ", ± 95 %", i.half);
}

void TellCell(const std::string& of, const Cell& cell, Report* report) {
  Tell(of + ": requests", MeanOf(cell.requests), report);
  Tell(of + ": on time (%)", MeanOf(cell.on_time), report);
  Tell(of + ": refused", MeanOf(cell.refused), report);
  Tell(of + ": broken off", MeanOf(cell.failed), report);
  Tell(of + ": moves", MeanOf(cell.moves), report);
  Tell(of + ": moves undone", MeanOf(cell.undone), report);
}

About TheBench() {
  About about = {"replan_sim", kQuestion, PlannedDay::Flags()};
  about.arguments.push_back(
      {"--start", "S", "2", "seconds until an engine serves"});
  about.arguments.push_back({"--seeds", "N", "10", "runs of each way"});
  return about;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  log::SetLevel("error");
  const auto day = PlannedDay::Read(arguments);
  if (!day.ok()) Die(std::string(day.status().message()));
  const auto world_of = [&](bool rests) {
    auto world = sim::MakeWorld(FleetFor(day->mean_rates(), rests),
                                SiteFor(arguments.Number("--start")));
    if (!world.ok()) Die(std::string(world.status().message()));
    return *std::move(world);
  };
  const sim::World starts = world_of(false), rests = world_of(true);
  Cell frozen, replanning, resting;
  for (uint64_t seed = 1; seed <= arguments.Count("--seeds"); ++seed) {
    const workload::Trace trace = LoadOf(*day, seed);
    if (!Simulate(starts, trace, true, &frozen) ||
        !Simulate(starts, trace, false, &replanning) ||
        !Simulate(rests, trace, false, &resting)) {
      return 1;
    }
  }
  Report report("replan_sim");
  TellCell("without replanning", frozen, &report);
  TellCell("with replanning", replanning, &report);
  TellCell("and places that rest", resting, &report);
  const Interval gain = DifferenceOf(replanning.on_time, frozen.on_time);
  Tell("on time with replanning, more than without (points)", gain, &report);
  Tell("on time with places that rest, more than without (points)",
       DifferenceOf(resting.on_time, frozen.on_time), &report);
  report.Claim("least of that interval (points)", gain.low(), 0,
               Compare::kAtLeast);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
