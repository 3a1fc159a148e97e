#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_ADAPTIVE_POLICY_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_ADAPTIVE_POLICY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/types/optional.h"
#include "daemon/scheduling/local/policy/calendar.h"
#include "daemon/scheduling/local/policy/floor.h"
#include "daemon/scheduling/local/policy/huge_pages.h"
#include "daemon/scheduling/local/policy/policy.h"
#include "daemon/scheduling/local/policy/waiting_tree.h"

namespace fineserve::sched {

// Algorithm 2 (adaptive_batch.h) for each model and priority, incrementally: a
// decision costs O(log n) and each request started or dropped another O(log n).
// A model's engines decide one after the other, the one with the least
// predicted TTFT first; higher priorities decide on all of them before lower
// ones on any.
//
// Why it starts the very batch that the paper's loop does, although late
// requests may still be in the tree: as TTFT is monotone, a late request fails
// `meets` for each prefix that contains it. So no late request is inside the
// longest prefix that meets. If the first request outside is late, it is
// dropped and the search repeated; otherwise the paper's loop would stop there
// too. (With several engines, one that is late only on this engine ends the
// prefix.)
//
// Longer requests are found to be late at the time that was predicted for it, a
// bounded number per decision. So a decision may report fewer of them than the
// batch form; NextCheck says when there are more.
class AdaptivePolicy final : public Policy {
 public:
  // `floor_share` is the fraction of a model's prompt tokens that is owed to
  // requests that Algorithm 2 would shed (floor.h).
  explicit AdaptivePolicy(double floor_share) : floor_share_(floor_share) {}

  void Add(const Queued& request) override;
  void Remove(const Queued& request) override;
  void Decide(Micros now, Host* host) override;
  Micros NextCheck() const override;

 private:
  using Lane = std::pair<ModelId, int64_t>;  // model, −priority
  struct Entry {
    Queued request;
    Calendar::Handle turn;   // in its model's floor
    Calendar::Handle check;  // in checks_
  };
  static Lane LaneOf(const Queued& request);

  // Schedules `request` to be checked at `then`.
  Calendar::Handle CheckAt(Micros then, const Queued& request);
  void DropTheLate(Micros now, Host* host);
  // Drops the request if it is late. Returns true if it was.
  bool DropIfLate(RequestId id, Micros now, Host* host);
  void Decide(ModelId model, Micros now, Host* host);
  // Starts the requests that the floor owes. If one of them has to wait for
  // room, returns its engine, which no other request may take; nullopt if all
  // were started.
  absl::optional<ReplicaId> StartOwed(ModelId model, Micros now, Host* host);
  void StartLane(const Lane& key, std::vector<ReplicaId>* engines, Micros now,
                 Host* host);
  // Returns true if there was no room for the next request. The tree may be
  // removed with its last request.
  bool StartBatch(WaitingTree* tree, ReplicaId engine, Micros now, Host* host);
  void Start(const Queued& request, ReplicaId engine, Micros now, Host* host);

  const double floor_share_;
  std::map<Lane, WaitingTree> lanes_;
  std::map<ModelId, Floor> floors_;
  absl::flat_hash_map<RequestId, Entry, absl::Hash<RequestId>,
                      std::equal_to<RequestId>,
                      HugePages<std::pair<const RequestId, Entry>>>
      entries_;
  Calendar checks_;  // by the time at which they are predicted to become late
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_ADAPTIVE_POLICY_H_
