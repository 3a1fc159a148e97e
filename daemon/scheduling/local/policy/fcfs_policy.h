#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_FCFS_POLICY_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_FCFS_POLICY_H_

#include <map>
#include <utility>

#include "daemon/scheduling/local/policy/policy.h"

namespace fineserve::sched {

// First come, first served, as in stock engines. There is a queue per model;
// its first request starts as soon as an engine takes it, and no request
// overtakes another or is dropped. A baseline that ignores deadlines and
// priorities.
class FcfsPolicy final : public Policy {
 public:
  void Add(const Queued& request) override;
  void Remove(const Queued& request) override;
  void Decide(Micros now, Host* host) override;
  Micros NextCheck() const override { return kNever; }

 private:
  using Queue = std::map<std::pair<Micros, RequestId>, Queued>;  // by arrival
  std::map<ModelId, Queue> queues_;
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_FCFS_POLICY_H_
