#ifndef DAEMON_WIRE_FAULT_COUNTS_H_
#define DAEMON_WIRE_FAULT_COUNTS_H_

#include <memory>

#include "daemon/wire/connection_watch.h"
#include "daemon/wire/message_types.h"

namespace fineserve::wire {

// As a report carries them; null if there is nothing to tell.
std::unique_ptr<RefusedConnectionsT> OnWire(const FaultCounts& counts);
// Null: none.
FaultCounts CountsOf(const RefusedConnectionsT* told);

uint64_t Sum(const FaultCounts& counts);

}  // namespace fineserve::wire

#endif  // DAEMON_WIRE_FAULT_COUNTS_H_
