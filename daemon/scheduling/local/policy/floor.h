#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_FLOOR_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_FLOOR_H_

#include <cstdint>
#include <map>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/types/optional.h"
#include "daemon/scheduling/local/policy/calendar.h"
#include "daemon/scheduling/local/policy/policy.h"
#include "daemon/scheduling/local/predict/ids.h"

namespace fineserve::sched {

// Keeps flows from starving: the flows that wait are owed `share` of the prompt
// tokens that a model starts, in equal parts. A flow is one tenant's requests
// of one length class (below 256 tokens, below 1,024, below 4,096, and above).
// Algorithm 2 sheds long prompts for short ones for as long as there are short
// ones; requests that are owed to a flow go before them.
//
// A flow whose soonest request has p tokens is owed that request at the latest
// when p · flows / share tokens have been started since it began to wait.
// Tokens that it was given in between are not owed to it. A request that is
// owed, but that no engine takes yet, keeps its turn until its deadline. With a
// `share` of 0 there is no floor, and the paper's algorithm decides alone.
//
// Credit is measured against a clock that counts each flow's part of the tokens
// started, so that an event costs O(log n). Confined to one thread.
class Floor {
 public:
  explicit Floor(double share) : share_(share) {}

  // Remove takes the handle that Add gave.
  Calendar::Handle Add(const Queued& request);
  void Remove(const Queued& request, Calendar::Handle handle);

  // Records that the request started; to be called after Remove.
  void Started(const Queued& request);

  // Returns the request that has been owed to its flow the longest; nullopt if
  // none is owed.
  absl::optional<RequestId> Owed() const;

  size_t flows() const { return flows_.size(); }

 private:
  using Key = std::pair<uint64_t, uint32_t>;  // tenant, length class
  struct Flow {
    double paid = 0;  // the clock up to which it has got its part
    Calendar waiting;
  };
  static Key KeyOf(const Queued& request);
  // Returns the clock at which the flow's soonest request is owed; nullopt if
  // it has no request.
  static absl::optional<double> OwedAt(const Flow& flow);
  // Changes a flow and its turn.
  template <typename Change>
  void Update(const Key& key, Change change);

  const double share_;
  double clock_ = 0;  // tokens owed so far to each flow that waited all along
  std::map<Key, Flow> flows_;
  absl::btree_set<std::pair<double, Key>> turns_;  // flows by OwedAt
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_FLOOR_H_
