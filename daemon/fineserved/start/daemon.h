#ifndef DAEMON_FINESERVED_START_DAEMON_H_
#define DAEMON_FINESERVED_START_DAEMON_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/fineserved/pool_service/kept_pool.h"
#include "daemon/fineserved/start/start_plan.h"
#include "daemon/fleet/config/config.h"

namespace fineserve::server {

// Reads the configuration again, on SIGHUP.
using Reload = std::function<absl::StatusOr<config::Config>()>;

// Claims the GPU, creates the pool or takes over the kept one, and serves until
// SIGTERM or SIGINT, all in the calling thread. If `reload` fails, the
// configuration stays as it was. Returns an error if the pool cannot be served;
// `*began` becomes true once it is served.
absl::Status RunDaemon(const StartPlan& plan, config::Config config,
                       Reload reload, absl::optional<KeptPool> kept,
                       bool* began);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_START_DAEMON_H_
