#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_MOORE_HODGSON_POLICY_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_MOORE_HODGSON_POLICY_H_

#include <map>
#include <utility>
#include <vector>

#include "daemon/scheduling/local/policy/policy.h"

namespace fineserve::sched {

// Prism's Algorithm 2: one queue for all models of a GPU. In order of deadline,
// each request is added to a schedule that runs one prefill after the other;
// when a request would be late, the longest so far is put off. The rest start
// in that order, as far as their engines take them. Requests that were put off
// are considered again next time; requests that would be late even alone are
// dropped. A baseline that ignores priorities. O(n log n) per decision.
class MooreHodgsonPolicy final : public Policy {
 public:
  void Add(const Queued& request) override;
  void Remove(const Queued& request) override;
  void Decide(Micros now, Host* host) override;
  Micros NextCheck() const override;

 private:
  using Turn = std::pair<Micros, RequestId>;  // deadline first
  // Returns the prefill time that the engines still have before them.
  Micros Backlog(const Host& host, Micros now) const;
  void DropLate(Micros now, Host* host);
  std::vector<Turn> Schedule(Micros now, const Host& host) const;

  std::map<Turn, Queued> queue_;
  std::map<ModelId, size_t> waiting_;  // of each model in queue_
  Micros next_check_ = kNever;
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_MOORE_HODGSON_POLICY_H_
