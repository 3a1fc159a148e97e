#ifndef DAEMON_SERVER_ENGINE_PAGE_H_
#define DAEMON_SERVER_ENGINE_PAGE_H_

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "daemon/slab/ids.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

// Makes the memfd of an engine page (daemon/abi/engine_page.h) for `pid`:
// header filled, size sealed. The shim maps it writable; once that is known
// SealPage stops further writable mappings.
absl::StatusOr<driver::Descriptor> MakePage(uint64_t epoch,
                                            slab::EngineId engine, pid_t pid);

// After this nobody can map the page writable any more, not even through
// /proc; the mapping that its process has keeps working.
absl::Status SealPage(const driver::Descriptor& page);

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_ENGINE_PAGE_H_
