#ifndef DAEMON_CONTRACT_ABI_LIMIT_LINK_H_
#define DAEMON_CONTRACT_ABI_LIMIT_LINK_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/observer_link.h"

namespace fineserve::abi {

// Limits what an engine of the link's table holds (LimitRequest). Errors:
//   InvalidArgument   the daemon refused, with this message
//   Unimplemented     the daemon is of a release that knows no limits
//   Unavailable       it did not answer in time, or hung up
absl::StatusOr<LimitDone> LimitEngine(const ObserverLink& link,
                                      uint32_t engine_id, uint32_t slabs);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_LIMIT_LINK_H_
