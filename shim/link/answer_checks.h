#ifndef SHIM_LINK_ANSWER_CHECKS_H_
#define SHIM_LINK_ANSWER_CHECKS_H_

// Checks a daemon's answers before they are used. Pure.

#include <cstdint>

#include "daemon/abi/messages.h"
#include "daemon/abi/transport.h"

namespace fineserve::shim {

bool IsUsable(const abi::Welcome& welcome);

// False if the answer would make us map memory in the wrong place.
bool IsUsable(const abi::ViewAnswer& answer, const abi::ViewRequest& request,
              const abi::Welcome& pool);

// False if a slab's blocks could not be computed from it.
bool IsUsable(const abi::RunPoolAnswer& answer);

// True if a batch answers a request for granules of `lease` (0 for the pool's).
template <typename Request>
bool IsBatchOf(const abi::GranuleBatch& batch, const Request& request,
               uint32_t lease, const abi::Received& received) {
  return batch.lease == lease && batch.first == request.first &&
         batch.count >= 1 && batch.count <= request.max_count &&
         batch.count == received.descriptor_count();
}

}  // namespace fineserve::shim

#endif  // SHIM_LINK_ANSWER_CHECKS_H_
