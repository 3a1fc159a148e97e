#ifndef DAEMON_CONTRACT_WIRE_DEMAND_COUNTS_H_
#define DAEMON_CONTRACT_WIRE_DEMAND_COUNTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/contract/wire/message_types.h"

namespace fineserve::wire {

// Counts of the requests for a model and their outcomes since the counting
// process began: ModelDemand without the model's name.
struct DemandCounts {
  uint64_t arrived = 0;
  uint64_t prompt_tokens = 0;  // of those that arrived
  uint64_t answered = 0;
  uint64_t output_tokens = 0;  // of those that were answered
  uint64_t on_time = 0;
  uint64_t late = 0;
  bool operator==(const DemandCounts&) const = default;

  // True if these counts may have grown from `before`, that is, none of them is
  // smaller.
  bool GoesOnFrom(const DemandCounts& before) const;
  // Returns the increase since `before`. These counts must have grown from it.
  DemandCounts Since(const DemandCounts& before) const;
  // Adds the counts of `more`. Each count saturates at its largest value.
  DemandCounts& operator+=(const DemandCounts& more);
};

DemandCounts CountsOf(const ModelDemandT& demand);
std::unique_ptr<ModelDemandT> DemandOf(const std::string& model,
                                       const DemandCounts& counts);

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_DEMAND_COUNTS_H_
