#include "tools/lab/sim/report/report.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tools/lab/svg/svg_plot.h"
#include "tools/lab/workload/summary_json.h"

namespace fineserve::sim {
namespace {

using Json = nlohmann::ordered_json;
using workload::Outcome;
using workload::Summary;

// A table of more rows is no help.
constexpr size_t kMostRows = 40;

std::vector<std::vector<Outcome>> ByModel(const Report& report) {
  std::vector<std::vector<Outcome>> by_model(report.world->models.size());
  for (const Outcome& o : report.result->outcomes) {
    by_model[o.model].push_back(o);
  }
  return by_model;
}

Gpu::Counters Sum(const RunResult& result) {
  Gpu::Counters all;
  for (const Gpu::Counters& gpu : result.gpus) {
    all.preemptions += gpu.preemptions;
    all.steps += gpu.steps;
    all.tokens += gpu.tokens;
    all.slabs_leased += gpu.slabs_leased;
    all.slabs_asked_back += gpu.slabs_asked_back;
    all.slabs_returned += gpu.slabs_returned;
    all.evictions += gpu.evictions;
    all.activations += gpu.activations;
    all.thrashes += gpu.thrashes;
  }
  return all;
}

size_t FirstTokensOnTime(const RunResult& result) {
  return static_cast<size_t>(std::count_if(
      result.outcomes.begin(), result.outcomes.end(), [](const Outcome& o) {
        return o.first_token_s > 0 && o.ttft_s() <= o.slo.ttft_s;
      }));
}

double Part(uint64_t of, size_t all) {
  return all == 0 ? 0 : static_cast<double>(of) / static_cast<double>(all);
}

void PrintRow(const std::string& name, const Summary& s) {
  printf(
      "%-20s %8zu %8zu %8zu %7zu %7.1f %8.2f %9.1f %8.0f %8.0f %8.0f %8.1f\n",
      name.c_str(), s.requests, s.done, s.dropped, s.failed, 100 * s.attainment,
      s.goodput, s.decode_tokens_per_second, 1000 * s.ttft_s.p50,
      1000 * s.ttft_s.p90, 1000 * s.ttft_s.p99, 1000 * s.tpot_s.p50);
}

// Seconds since the load began.
double At(const RunResult& result, Micros at) {
  return 1e-6 * static_cast<double>(at - result.load_began);
}

void PrintPlan(const RunResult& result) {
  const PlanRecord& plan = *result.plan;
  printf(
      "plan %lu: %u moves, %u undone, %lu engines ended before they served\n",
      plan.last_number, plan.moves, plan.moves_undone, plan.failed_starts);
  for (const PlanRecord::Step& step : plan.steps) {
    printf("  %8.1f s  plan %lu: %s\n", At(result, step.at), step.number,
           step.why.c_str());
  }
  for (const std::string& trouble : plan.troubles) {
    printf("  %s\n", trouble.c_str());
  }
}

Json PlanJson(const RunResult& result) {
  const PlanRecord& plan = *result.plan;
  Json steps = Json::array();
  for (const PlanRecord::Step& step : plan.steps) {
    steps.push_back({{"seconds", At(result, step.at)},
                     {"number", step.number},
                     {"why", step.why}});
  }
  return {{"number", plan.last_number},
          {"moves", plan.moves},
          {"moves_undone", plan.moves_undone},
          {"failed_starts", plan.failed_starts},
          {"steps", steps},
          {"troubles", plan.troubles}};
}

}  // namespace

void Print(const Report& report) {
  const RunResult& result = *report.result;
  printf("%-20s %8s %8s %8s %7s %7s %8s %9s %8s %8s %8s %8s\n", "model",
         "requests", "done", "dropped", "cut", "SLO %", "goodput", "tokens/s",
         "TTFT p50", "TTFT p90", "TTFT p99", "TPOT p50");
  const auto by_model = ByModel(report);
  size_t rows = 0;
  for (size_t m = 0; m < by_model.size(); ++m) {
    if (by_model[m].empty() || ++rows > kMostRows) continue;
    PrintRow(report.world->models[m].name,
             workload::Summarize(by_model[m], result.seconds));
  }
  if (rows > kMostRows) printf("… and %zu more models\n", rows - kMostRows);
  if (rows != 1) {
    PrintRow("all", workload::Summarize(result.outcomes, result.seconds));
  }
  const size_t all = result.outcomes.size();
  const size_t first = FirstTokensOnTime(result);
  printf("%.1f s simulated; times in ms\n", result.seconds);
  printf("first tokens on time: %.2f %% of all requests",
         100 * Part(first, all));
  if (report.bound) {
    printf("; no schedule could have more than %.2f %%",
           100 * Part(*report.bound, all));
  }
  const Gpu::Counters sum = Sum(result);
  printf(
      "\npreemptions %lu, slabs leased %lu, asked back %lu, returned %lu, "
      "steps "
      "%lu\n",
      sum.preemptions, sum.slabs_leased, sum.slabs_asked_back,
      sum.slabs_returned, sum.steps);
  if (sum.evictions + sum.activations != 0) {
    printf("evictions %lu, activations %lu, evicted again soon %lu\n",
           sum.evictions, sum.activations, sum.thrashes);
  }
  if (result.plan) PrintPlan(result);
  printf("inputs, not results: %s\n", report.source.c_str());
}

std::string ToJson(const Report& report) {
  const RunResult& result = *report.result;
  const Gpu::Counters sum = Sum(result);
  const size_t all = result.outcomes.size();
  const size_t first = FirstTokensOnTime(result);
  Json json = {
      {"source", report.load},
      {"inputs", report.source},
      {"seed", report.seed},
      {"seconds", result.seconds},
      {"gpus", report.world->gpus.size()},
      {"cut", result.cut},
      {"first_tokens_on_time", first},
      {"first_tokens_on_time_part", Part(first, all)},
      {"clairvoyant_bound", report.bound ? Json(*report.bound) : Json(nullptr)},
      {"clairvoyant_bound_part",
       report.bound ? Json(Part(*report.bound, all)) : Json(nullptr)},
      {"preemptions", sum.preemptions},
      {"steps", sum.steps},
      {"tokens", sum.tokens},
      {"slabs_leased", sum.slabs_leased},
      {"slabs_asked_back", sum.slabs_asked_back},
      {"slabs_returned", sum.slabs_returned},
      {"evictions", sum.evictions},
      {"activations", sum.activations},
      {"evicted_again_soon", sum.thrashes},
      {"all", workload::ToJson(result.outcomes, result.seconds)},
      {"models", Json::object()}};
  if (result.plan) json["plan"] = PlanJson(result);
  const auto by_model = ByModel(report);
  for (size_t m = 0; m < by_model.size(); ++m) {
    json["models"][report.world->models[m].name] =
        workload::ToJson(by_model[m], result.seconds);
  }
  return json.dump(2) + "\n";
}

std::string ToSvg(const Report& report) {
  constexpr size_t kMostPoints = 300;
  const std::vector<Outcome>& outcomes = report.result->outcomes;
  double last = 0;
  for (const Outcome& o : outcomes) last = std::max(last, o.begin_s);
  // A line needs at least two points.
  const size_t points =
      std::clamp<size_t>(static_cast<size_t>(last) + 1, 2, kMostPoints);
  const double width = std::max(1.0, (last + 1) / static_cast<double>(points));
  std::vector<bench::Series> series = {
      {"sent", std::vector<double>(points)},
      {"done", std::vector<double>(points)},
      {"on time", std::vector<double>(points)}};
  for (const Outcome& o : outcomes) {
    const size_t at =
        std::min(points - 1, static_cast<size_t>(o.begin_s / width));
    series[0].values[at] += 1 / width;
    series[1].values[at] += o.end == workload::End::kDone ? 1 / width : 0;
    series[2].values[at] += o.attained() ? 1 / width : 0;
  }
  std::vector<double> x(points);
  for (size_t i = 0; i < points; ++i) x[i] = width * static_cast<double>(i);
  return bench::LineChart("Requests by the time at which they were sent",
                          "seconds", "requests/s", x, series);
}

}  // namespace fineserve::sim
