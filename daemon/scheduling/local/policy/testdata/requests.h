#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_REQUESTS_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_REQUESTS_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/local/policy/adaptive_batch.h"

namespace fineserve::sched {

inline Waiting WaitingRequest(uint64_t id, uint32_t tokens, Micros deadline) {
  return {tokens, RequestId{id}, deadline};
}

inline std::vector<RequestId> IdsOf(const std::vector<uint64_t>& numbers) {
  std::vector<RequestId> ids;
  for (const uint64_t n : numbers) ids.push_back(RequestId{n});
  return ids;
}

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_REQUESTS_H_
