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

// A daemon's report about its GPU besides its engines.
struct GpuFacts {
  uint64_t memory_bytes = 0;  // of the device
  uint64_t pool_bytes = 0;
  uint64_t used_bytes = 0;         // of the pool, leased
  wire::FaultCounts refused = {};  // connections of other machines
  // The machine's memory that processes and stores may use; 0: not known.
  uint64_t host_bytes = {};
};

// A daemon's report to the leader, without the plan that it knows, its proxies
// and their counts. `gpu` is the UUID; `serves` says whether the engine of a
// name serves. Pure, so the simulator makes its reports with it, too.
wire::ReportT ReportOf(const std::string& gpu, const GpuFacts& facts,
                       const std::vector<ServingEngine>& engines,
                       absl::FunctionRef<bool(const std::string&)> serves,
                       const sched::LocalScheduler& scheduler,
                       sched::Micros now);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_GPU_REPORT_H_
