#ifndef DAEMON_FINESERVED_ADMISSION_GPU_REPORT_H_
#define DAEMON_FINESERVED_ADMISSION_GPU_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/contract/wire/connection_watch.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/fineserved/admission/rooms/set_rooms.h"
#include "daemon/scheduling/local/local_scheduler.h"

namespace fineserve::admission {

// The part of a daemon's report that describes its GPU, not its engines.
struct GpuFacts {
  uint64_t memory_bytes = 0;  // of the device
  uint64_t pool_bytes = 0;
  uint64_t used_bytes = 0;         // of the pool, leased
  wire::FaultCounts refused = {};  // connections of other machines
  // The machine's memory that processes and stores may use, in bytes; 0 if
  // unknown.
  uint64_t host_bytes = {};
};

// Returns a daemon's report to the leader, without the plan that it knows, its
// proxies and their counts. `gpu` is the UUID; `serves` says whether the named
// engine serves. Pure, so the simulator can use it too.
wire::ReportT ReportOf(const std::string& gpu, const GpuFacts& facts,
                       const std::vector<ServingEngine>& engines,
                       absl::FunctionRef<bool(const std::string&)> serves,
                       const sched::LocalScheduler& scheduler,
                       sched::Micros now);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_GPU_REPORT_H_
