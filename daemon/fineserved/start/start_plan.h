#ifndef DAEMON_FINESERVED_START_START_PLAN_H_
#define DAEMON_FINESERVED_START_START_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/fineserved/backing/find_device.h"
#include "daemon/fineserved/backing/nvml.h"
#include "daemon/fineserved/pool_service/kept_pool.h"
#include "daemon/fleet/config/config.h"
#include "daemon/pool/geometry/pool_geometry.h"
#include "kernels/driver/driver.h"

namespace fineserve::server {

// The plan of a start, made without allocating anything.
struct StartPlan {
  driver::Driver driver;
  backing::Device device;
  slab::PoolGeometry geometry;  // of the pool at its largest
  uint32_t slabs = 0;           // with memory from the start
  uint64_t free_bytes = 0;      // on the device now
  absl::StatusOr<backing::Nvml> nvml;
  // The reason for the size, if the configuration does not name it.
  std::string choice;
  // abi::Describe's text about pools whose daemons have ended; empty if there
  // are none.
  std::string former_pools = {};
};

// Plans a start with the pool of a former daemon. InvalidArgument if that pool
// is on another GPU than the configuration names; DataLoss if the driver can no
// longer import the pool's memory.
absl::StatusOr<StartPlan> MakeStartPlan(const backing::DeviceChoice& choice,
                                        const KeptPool& kept);

// Loads the driver, finds the GPU and determines the pool's geometry.
// InvalidArgument if the configuration asks for something that this machine
// does not have; FailedPrecondition if the GPU's mode allows no pool, or the
// reserve of a pool of size "auto" leaves nothing. Engines that still hold a
// former daemon's pool need a daemon: then neither the reserve nor a fixed size
// keeps it from starting with the free memory, at least a slab.
absl::StatusOr<StartPlan> MakeStartPlan(const config::Config& config,
                                        const backing::DeviceChoice& choice);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_START_START_PLAN_H_
