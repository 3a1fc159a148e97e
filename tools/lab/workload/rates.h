#ifndef TOOLS_LAB_WORKLOAD_RATES_H_
#define TOOLS_LAB_WORKLOAD_RATES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/lab/workload/arrivals.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::workload {

// How the rates of real models rise and fall: for each model a row of rates
// with a mean of 1, each of which holds for a slot of kShapeSlotSeconds.
using RateShapes = std::map<std::string, std::vector<double>>;
inline constexpr double kShapeSlotSeconds = 600;

// Reads ServeGen's published rates (shared/data/README.md): a gzipped or plain
// table whose first columns are start_s,model,rate_rps. A slot that is missing
// in the table is missing in the model's row, too. Returns NotFound, with the
// path, if the file cannot be read, and DataLoss for a bad row.
absl::StatusOr<RateShapes> ReadRateShapes(const std::string& path);

// Requested load in consecutive slots of equal length. Each slot has the same
// models in the same order.
struct Slots {
  double seconds = 0;  // of each
  std::vector<std::vector<Stream>> streams;
};

// Generates Poisson arrivals during the first `seconds`, with rates that change
// from slot to slot. Lengths are drawn from `lengths`, which must not be empty.
// The same seed gives the same trace.
Trace PoissonBySlots(const Slots& slots, double seconds,
                     const std::vector<Lengths>& lengths, uint64_t seed);

}  // namespace fineserve::workload

#endif  // TOOLS_LAB_WORKLOAD_RATES_H_
