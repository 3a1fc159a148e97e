#ifndef DAEMON_WIRE_DEMAND_COUNTS_H_
#define DAEMON_WIRE_DEMAND_COUNTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/wire/message_types.h"

namespace fineserve::wire {

// What clients have asked of a model and what became of it, counted since the
// teller began: ModelDemand without the model's name.
struct DemandCounts {
  uint64_t arrived = 0;
  uint64_t prompt_tokens = 0;  // of those that arrived
  uint64_t answered = 0;
  uint64_t output_tokens = 0;  // of those that were answered
  uint64_t on_time = 0;
  uint64_t late = 0;
  bool operator==(const DemandCounts&) const = default;

  // Whether they can be what `before` has become: no count is less.
  bool GoesOnFrom(const DemandCounts& before) const;
  // What came since `before`, from which these go on.
  DemandCounts Since(const DemandCounts& before) const;
  // Each count stops at the largest number there is.
  DemandCounts& operator+=(const DemandCounts& more);
};

DemandCounts CountsOf(const ModelDemandT& demand);
std::unique_ptr<ModelDemandT> DemandOf(const std::string& model,
                                       const DemandCounts& counts);

}  // namespace fineserve::wire

#endif  // DAEMON_WIRE_DEMAND_COUNTS_H_
