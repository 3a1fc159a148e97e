#ifndef SHIM_LINK_ANSWER_CHECKS_H_
#define SHIM_LINK_ANSWER_CHECKS_H_

// What a daemon's answers must hold before anything is made of them. Pure.

#include <cstdint>

#include "daemon/abi/messages.h"
#include "daemon/abi/transport.h"

namespace fineserve::shim {

bool IsUsable(const abi::Welcome& welcome);

// False for an answer that would make us map memory out of place.
bool IsUsable(const abi::ViewAnswer& answer, const abi::ViewRequest& request,
              const abi::Welcome& pool);

// Whether a batch answers a request for granules of `lease` (0: of the pool).
template <typename Request>
bool IsBatchOf(const abi::GranuleBatch& batch, const Request& request,
               uint32_t lease, const abi::Received& received) {
  return batch.lease == lease && batch.first == request.first &&
         batch.count >= 1 && batch.count <= request.max_count &&
         batch.count == received.descriptor_count();
}

}  // namespace fineserve::shim

#endif  // SHIM_LINK_ANSWER_CHECKS_H_
