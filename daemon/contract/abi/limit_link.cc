#include "daemon/contract/abi/limit_link.h"

#include <errno.h>

#include "absl/status/status.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/observer_exchange.h"

namespace fineserve::abi {

absl::StatusOr<LimitDone> LimitEngine(const ObserverLink& link,
                                      uint32_t engine_id, uint32_t slabs) {
  auto request = MakeMessage<LimitRequest>(kObserverSequence);
  request.engine_id = engine_id;
  request.slabs = slabs;
  return Exchange<LimitDone>(link, request, absl::StatusCode::kInvalidArgument,
                             absl::UnavailableError(base::WithErrno(
                                 "fineserved did not answer", EAGAIN)));
}

}  // namespace fineserve::abi
