#ifndef BENCH_REPLAN_PLANNED_DAY_H_
#define BENCH_REPLAN_PLANNED_DAY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report/report.h"
#include "tools/lab/workload/arrivals.h"
#include "tools/lab/workload/zones.h"

namespace fineserve::bench {

// The load of PlannedFleet, for real processes and for the simulator: a day of
// ServeGen's deepseek-r1, sped up, with each model's hours shifted against the
// one before. Immutable.
class PlannedDay {
 public:
  // Time of the load from which leader, proxy and scheduler learn before the
  // day begins.
  static constexpr double kWarmSeconds = 8;

  // The flags that Read reads. The bench's other flags follow them.
  static std::vector<Argument> Flags();
  // Reads the day. Errors name the file, or the flag to set.
  static absl::StatusOr<PlannedDay> Read(const Arguments& arguments);

  double seconds() const { return zones_.seconds; }
  // Requests/s of a model's busiest hour.
  double busiest_rate() const { return zones_.busiest_rate; }
  // Requests/s of each model over the day.
  const std::vector<double>& mean_rates() const { return mean_rates_; }

  // Returns kWarmSeconds of load at the mean rates.
  workload::Trace WarmUp() const;
  workload::Trace Arrivals(uint64_t seed) const;

 private:
  explicit PlannedDay(const workload::Zones& zones)
      : zones_(zones),
        slots_(workload::RatesOf(zones)),
        mean_rates_(workload::MeanRates(slots_, zones.seconds)) {}

  workload::Zones zones_;
  workload::Slots slots_;
  std::vector<double> mean_rates_;
};

}  // namespace fineserve::bench

#endif  // BENCH_REPLAN_PLANNED_DAY_H_
