#ifndef DAEMON_SCHED_WAITING_TREE_H_
#define DAEMON_SCHED_WAITING_TREE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/sched/ids.h"

namespace fineserve::sched {

// A request as Algorithm 2 sees it.
struct Waiting {
  uint32_t tokens;  // of its prompt
  RequestId id;
  Micros deadline;
};

// Order of length: who stays longest in a batch that is too long. The longest,
// and of equals the largest id, leaves first.
inline bool Shorter(const Waiting& a, const Waiting& b) {
  return std::pair(a.tokens, a.id) < std::pair(b.tokens, b.id);
}

// Order of urgency: earliest deadline first.
inline bool Sooner(const Waiting& a, const Waiting& b) {
  return std::pair(a.deadline, a.id) < std::pair(b.deadline, b.id);
}

// Waiting requests in order of length; each subtree knows its tokens and its
// soonest request. That is all Algorithm 2 needs (adaptive_batch.h), so that
// an arrival, a departure and a decision each cost O(log n).
//
// A treap whose priorities are hashes of the ids: expected depth 2 ln n
// whatever the order of arrival. Nodes lie in one vector; 0 is "none".
// Confined to one thread.
class WaitingTree {
 public:
  WaitingTree() : nodes_(1) {}

  // (tokens, id) must not be there yet.
  void Insert(const Waiting& request);

  // False if it is not there.
  bool Erase(const Waiting& request);

  size_t size() const { return nodes_.size() - 1 - free_.size(); }
  uint64_t tokens() const { return nodes_[root_].tokens; }

  // The soonest of those not longer than `last` (Shorter or equal).
  absl::optional<RequestId> Soonest(const Waiting& last) const;

  // Some first requests in order of length.
  struct Prefix {
    uint64_t tokens = 0;
    Micros deadline = kNever;       // of the soonest
    absl::optional<Waiting> last;   // none: empty
    absl::optional<Waiting> after;  // the first outside; none: all are inside
  };

  // The longest prefix for which holds(tokens, soonest deadline); it must not
  // hold for a prefix after it has failed for a shorter one.
  template <typename Holds>
  Prefix LongestPrefix(Holds holds) const;

 private:
  using Index = uint32_t;
  // In order of urgency.
  struct Due {
    Micros deadline = kNever;
    RequestId id{UINT64_MAX};  // of an empty subtree: later than every request
    bool operator<(const Due& other) const {
      return std::pair(deadline, id) < std::pair(other.deadline, other.id);
    }
  };
  // A cache line: with 10⁶ waiting, each level of the tree is a miss.
  struct alignas(64) Node {
    Waiting request{0, RequestId{0}, kNever};
    Due soonest;            // of this subtree
    uint64_t tokens = 0;    // of this subtree
    uint32_t priority = 0;  // ≥ those of its children
    Index left = 0, right = 0;
  };
  static_assert(sizeof(Node) == 64);

  Index New(const Waiting& request);
  void Update(Index n);
  Index Merge(Index left, Index right);
  // Into those Shorter than `request` and the rest.
  std::pair<Index, Index> Split(Index n, const Waiting& request);
  // `n` with the new node `added` below it.
  Index With(Index n, Index added);
  // `n` without `request`, whose node is freed; *found if it was there.
  Index Without(Index n, const Waiting& request, bool* found);

  std::vector<Node> nodes_;
  std::vector<Index> free_;
  Index root_ = 0;
};

template <typename Holds>
WaitingTree::Prefix WaitingTree::LongestPrefix(Holds holds) const {
  Prefix found;
  for (Index n = root_; n != 0;) {
    const Node& node = nodes_[n];
    const Node& left = nodes_[node.left];
    uint64_t tokens = found.tokens + left.tokens;
    Micros deadline = std::min(found.deadline, left.soonest.deadline);
    if (node.left != 0 && !holds(tokens, deadline)) {
      n = node.left;
      continue;
    }
    tokens += node.request.tokens;
    deadline = std::min(deadline, node.request.deadline);
    if (!holds(tokens, deadline)) {
      found.after = node.request;
      n = node.left;
      continue;
    }
    found.tokens = tokens;
    found.deadline = deadline;
    found.last = node.request;
    n = node.right;
  }
  return found;
}

}  // namespace fineserve::sched

#endif  // DAEMON_SCHED_WAITING_TREE_H_
