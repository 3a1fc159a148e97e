#ifndef DAEMON_SCHED_POLICY_MOORE_HODGSON_POLICY_H_
#define DAEMON_SCHED_POLICY_MOORE_HODGSON_POLICY_H_

#include <map>
#include <utility>
#include <vector>

#include "daemon/sched/policy/policy.h"

namespace fineserve::sched {

// Prism's Algorithm 2: one queue for all models of a GPU. In order of deadline
// each request is added to a schedule that runs one prefill after the other;
// when one would be late, the longest so far is put off. What is left starts in
// that order, as far as its engines take it; who is put off is considered
// again next time, who cannot make it even alone is dropped. A baseline:
// priorities mean nothing to it. O(n log n) a decision.
class MooreHodgsonPolicy final : public Policy {
 public:
  void Add(const Queued& request) override;
  void Remove(const Queued& request) override;
  void Decide(Micros now, Host* host) override;
  Micros NextCheck() const override;

 private:
  using Turn = std::pair<Micros, RequestId>;  // deadline first
  // Prefill seconds that the engines have before them.
  Micros Backlog(const Host& host, Micros now) const;
  void DropLate(Micros now, Host* host);
  std::vector<Turn> Schedule(Micros now, const Host& host) const;

  std::map<Turn, Queued> queue_;
  std::map<ModelId, size_t> waiting_;  // of each model in queue_
  Micros next_check_ = kNever;
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHED_POLICY_MOORE_HODGSON_POLICY_H_
