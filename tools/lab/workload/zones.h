#ifndef TOOLS_LAB_WORKLOAD_ZONES_H_
#define TOOLS_LAB_WORKLOAD_ZONES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/lab/workload/rates.h"

namespace fineserve::workload {

// Pure functions for a load that shifts between models.

// Models whose rates all follow the same row of kShapeSlotSeconds slots, as if
// they served time zones spread evenly over the day: the second of three models
// now has the rate that the first one has 8 hours later.
struct Zones {
  std::vector<std::string> models;
  std::vector<double> shape;  // not empty
  double seconds = 0;         // of the run
  double speed = 1;           // how many times as fast as the row
  // Requests/s in the busiest hour of the row that any of the models reaches.
  double busiest_rate = 0;
};

// Returns the rates of the run, in slots of kShapeSlotSeconds / speed.
Slots RatesOf(const Zones& zones);

// Returns the mean requests/s of each model over the run.
std::vector<double> MeanRates(const Slots& slots, double seconds);

// An engine's pool, and how much of it requests of equal lengths need.
struct KvNeed {
  double pool_bytes = 0;
  double block_bytes = 0;
  uint32_t block_tokens = 1;
  Lengths lengths;
  double token_seconds = 0;  // of one token of the answer
};

// Returns the requests/s that hold `part` of the pool if each request has the
// blocks of all its tokens for as long as its answer takes (Little's law).
double RateFor(const KvNeed& need, double part);

}  // namespace fineserve::workload

#endif  // TOOLS_LAB_WORKLOAD_ZONES_H_
