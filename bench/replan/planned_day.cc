#include "bench/replan/planned_day.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "bench/replan/planned_fleet.h"
#include "tools/lab/workload/rates.h"

namespace fineserve::bench {
namespace {

constexpr char kRates[] = "/servegen_rates_10min_days0-6.csv.gz";
constexpr char kShape[] = "deepseek-r1";
// Number of seeds that the slots of one run may use.
constexpr uint64_t kSeedsOfRun = 1'000'000;

}  // namespace

std::vector<Argument> PlannedDay::Flags() {
  return {{"--data", "DIR", "../shared/data", "folder of the real rates"},
          {"--minutes", "N", "8", "length of each run"},
          {"--speed", "N", "180", "how much faster than the real day"},
          {"--busiest", "N", "1.25",
           "part of a GPU's KV that a model holds in its busiest hour"}};
}

absl::StatusOr<PlannedDay> PlannedDay::Read(const Arguments& arguments) {
  const std::string path = arguments.Text("--data") + kRates;
  const auto shapes = workload::ReadRateShapes(path);
  if (!shapes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(shapes.status().message()),
                     "; set the folder with --data"));
  }
  const auto shape = shapes->find(kShape);
  if (shape == shapes->end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has no model ", kShape));
  }
  workload::Zones zones;
  zones.models = PlannedFleet::Models();
  zones.shape = shape->second;
  zones.seconds = 60 * arguments.Number("--minutes");
  zones.speed = arguments.Number("--speed");
  zones.busiest_rate =
      workload::RateFor(PlannedFleet::Need(), arguments.Number("--busiest"));
  return PlannedDay(zones);
}

workload::Trace PlannedDay::WarmUp() const {
  std::vector<workload::Stream> streams;
  for (size_t m = 0; m < mean_rates_.size(); ++m) {
    streams.push_back({zones_.models[m], mean_rates_[m]});
  }
  return workload::Poisson(streams, kWarmSeconds, {PlannedFleet::kLengths},
                           /*seed=*/0);
}

workload::Trace PlannedDay::Arrivals(uint64_t seed) const {
  return workload::PoissonBySlots(slots_, zones_.seconds,
                                  {PlannedFleet::kLengths}, seed * kSeedsOfRun);
}

}  // namespace fineserve::bench
