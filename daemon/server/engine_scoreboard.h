#ifndef DAEMON_SERVER_ENGINE_SCOREBOARD_H_
#define DAEMON_SERVER_ENGINE_SCOREBOARD_H_

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "daemon/slab/ids.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

// Makes the memfd of an engine scoreboard (daemon/abi/engine_scoreboard.h) for
// `pid`: header filled, size sealed. The shim maps it writable; once that is
// known SealScoreboard stops further writable mappings.
absl::StatusOr<driver::Descriptor> MakeScoreboard(uint64_t epoch,
                                                  slab::EngineId engine,
                                                  pid_t pid);

// After this nobody can map the scoreboard writable any more, not even through
// /proc; the mapping that its process has keeps working.
absl::Status SealScoreboard(const driver::Descriptor& scoreboard);

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_ENGINE_SCOREBOARD_H_
