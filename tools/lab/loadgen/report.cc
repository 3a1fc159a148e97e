#include "tools/lab/loadgen/report.h"

#include <stdio.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tools/lab/svg/svg_plot.h"
#include "tools/lab/workload/summary_json.h"

namespace fineserve::loadgen {
namespace {

using Json = nlohmann::ordered_json;
using workload::Outcome;
using workload::Summary;

std::vector<Outcome> OfModel(const RunResult& result, uint32_t model) {
  std::vector<Outcome> own;
  for (const Outcome& o : result.outcomes) {
    if (o.model == model) own.push_back(o);
  }
  return own;
}

void PrintRow(const std::string& name, const Summary& s) {
  printf(
      "%-20s %8zu %7zu %7zu %7zu %8.1f %8.2f %8.2f %9.1f %8.0f %8.0f %8.1f\n",
      name.c_str(), s.requests, s.done, s.dropped, s.failed, 100 * s.attainment,
      s.requests_per_second, s.goodput, s.decode_tokens_per_second,
      1000 * s.ttft_s.p50, 1000 * s.ttft_s.p99, 1000 * s.tpot_s.p50);
}

}  // namespace

void Print(const RunResult& result, const workload::Trace& trace) {
  printf("%-20s %8s %7s %7s %7s %8s %8s %8s %9s %8s %8s %8s\n", "model",
         "requests", "done", "dropped", "failed", "SLO %", "req/s", "goodput",
         "tokens/s", "TTFT p50", "TTFT p99", "TPOT p50");
  for (uint32_t m = 0; m < trace.models.size(); ++m) {
    PrintRow(trace.models[m],
             workload::Summarize(OfModel(result, m), result.seconds));
  }
  if (trace.models.size() > 1) {
    PrintRow("all", workload::Summarize(result.outcomes, result.seconds));
  }
  printf(
      "%.1f s; times in ms; the sender was at most %.1f ms late and used "
      "%.0f %% of a core\n",
      result.seconds, 1000 * result.worst_late_s, 100 * result.cpu_share);
  if (result.interrupted) printf("interrupted: the rest was not sent\n");
  if (result.unfinished > 0) {
    printf("%zu requests had not ended at the limit and count as failed\n",
           result.unfinished);
  }
  for (const auto& [error, count] : result.errors) {
    printf("%zu times: %s\n", count, error.c_str());
  }
}

std::string ToJson(const RunResult& result, const workload::Trace& trace,
                   const std::string& source) {
  Json json = {{"source", source},
               {"seconds", result.seconds},
               {"interrupted", result.interrupted},
               {"unfinished", result.unfinished},
               {"worst_late_s", result.worst_late_s},
               {"cpu_share", result.cpu_share},
               {"errors", result.errors},
               {"all", workload::ToJson(result.outcomes, result.seconds)},
               {"models", Json::object()}};
  for (uint32_t m = 0; m < trace.models.size(); ++m) {
    json["models"][trace.models[m]] =
        workload::ToJson(OfModel(result, m), result.seconds);
  }
  // The error texts come from servers; bytes that are not UTF-8 must not throw.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ToSvg(const RunResult& result) {
  double last = 0;
  for (const Outcome& o : result.outcomes) last = std::max(last, o.begin_s);
  // A line needs at least two points.
  const auto seconds = std::max<size_t>(2, static_cast<size_t>(last) + 1);
  std::vector<bench::Series> series = {
      {"sent", std::vector<double>(seconds)},
      {"done", std::vector<double>(seconds)},
      {"on time", std::vector<double>(seconds)}};
  for (const Outcome& o : result.outcomes) {
    const auto second = static_cast<size_t>(o.begin_s);
    ++series[0].values[second];
    series[1].values[second] += o.end == workload::End::kDone ? 1 : 0;
    series[2].values[second] += o.attained() ? 1 : 0;
  }
  std::vector<double> ticks(seconds);
  std::iota(ticks.begin(), ticks.end(), 0);
  return bench::LineChart("Requests by the second in which they were sent",
                          "seconds", "requests", ticks, series);
}

}  // namespace fineserve::loadgen
