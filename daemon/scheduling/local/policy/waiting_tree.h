#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_WAITING_TREE_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_WAITING_TREE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/scheduling/local/policy/huge_pages.h"
#include "daemon/scheduling/local/predict/ids.h"

namespace fineserve::sched {

// A request as Algorithm 2 sees it.
struct Waiting {
  uint32_t tokens;  // of its prompt
  RequestId id;
  Micros deadline;
};

// Orders requests by length, in which they leave a batch that is too long: the
// longest leaves first and, of equals, the one with the largest id.
inline bool Shorter(const Waiting& a, const Waiting& b) {
  return std::pair(a.tokens, a.id) < std::pair(b.tokens, b.id);
}

// Orders requests by urgency: earliest deadline first.
inline bool Sooner(const Waiting& a, const Waiting& b) {
  return std::pair(a.deadline, a.id) < std::pair(b.deadline, b.id);
}

// The first requests in order of length.
struct Prefix {
  uint64_t tokens = 0;
  Micros deadline = kNever;       // of the soonest
  absl::optional<Waiting> after;  // the first outside; none: all are inside
};

// Waiting requests in order of length. For each subtree its tokens and its
// soonest request are known, which is all that Algorithm 2 needs
// (adaptive_batch.h), so that an arrival, a departure and a decision each cost
// O(log n).
//
// A B+-tree. A subtree's figures are in its parent, so that a descent touches
// one node per level: with 10⁶ waiting, each node below the upper levels is a
// cache miss, and log₂ n of them would cost more than all else in a decision.
// All nodes are in one vector. Confined to one thread.
//
// `kMost`: the parts of a node. Tests take few, to get a high tree.
template <size_t kMost>
class LengthTree {
  static_assert(kMost >= 8);  // no inner node is left with a single child

 public:
  LengthTree() : nodes_(1) {}

  // REQUIRES: (tokens, id) is not in the tree yet.
  void Insert(const Waiting& request);

  // REQUIRES: `request` is in the tree.
  void Erase(const Waiting& request);

  size_t size() const { return size_; }
  size_t nodes() const { return nodes_.size() - free_.size(); }

  // Returns the soonest of the requests shorter than `after`, which must be in
  // the tree; without `after`, the soonest of all requests.
  absl::optional<RequestId> Soonest(const absl::optional<Waiting>& after) const;

  // Returns the longest prefix for which holds(tokens, soonest deadline) is
  // true; it must not be true for a prefix if it is false for a shorter one.
  template <typename Holds>
  Prefix LongestPrefix(Holds holds) const;

 private:
  using Index = uint32_t;
  static constexpr size_t kFewest = kMost / 4;  // in any node but the root
  // In order of urgency.
  struct Due {
    Micros deadline = kNever;
    RequestId id{UINT64_MAX};  // of an empty subtree: later than every request
    bool operator<(const Due& other) const {
      return std::pair(deadline, id) < std::pair(other.deadline, other.id);
    }
  };
  // A subtree or, in a leaf, a request.
  struct Part {
    // At most the length of each request in this part, and more than the length
    // of all requests in the part before.
    uint32_t first_tokens;
    Index child;  // unused in a leaf
    RequestId first_id;
    uint64_t tokens;
    Due soonest;
  };
  struct alignas(64) Node {
    size_t count = 0;
    Part parts[kMost];

    Part* begin() { return parts; }
    Part* end() { return parts + count; }
    const Part* begin() const { return parts; }
    const Part* end() const { return parts + count; }
  };

  static bool IsShorter(const Waiting& request, const Part& part) {
    return std::pair(request.tokens, request.id) <
           std::pair(part.first_tokens, part.first_id);
  }
  // The soonest of some parts.
  static Due SoonestOf(const Part* begin, const Part* end);
  // Returns the part whose subtree `request` belongs to; in a leaf, the request
  // itself or the part before.
  static size_t Place(const Node& node, const Waiting& request);
  static void InsertAt(Node* node, size_t i, const Part& part);
  static void EraseAt(Node* node, size_t i);

  Index New();
  // Returns a parent's figures for the node `child`.
  Part PartOf(Index child) const;
  // Splits the full child `i` of `parent` in two.
  void Split(Index parent, size_t i);
  // Merges child `i` of `parent`, which has too few parts, with a neighbour, or
  // divides the parts of both equally.
  void Mend(Index parent, size_t i);
  void Erase(Index n, size_t level, const Waiting& request);
  void Prefetch(Index n) const;

  std::vector<Node, HugePages<Node>> nodes_;
  std::vector<Index> free_;
  Index root_ = 0;
  size_t height_ = 0;  // levels above the leaves
  size_t size_ = 0;
};

// Heuristic: from 16 to 64 makes no difference to `scripts/bench admission`.
using WaitingTree = LengthTree<48>;

template <size_t kMost>
template <typename Holds>
Prefix LengthTree<kMost>::LongestPrefix(Holds holds) const {
  Prefix found;
  Index n = root_;
  for (size_t level = height_;; --level) {
    const Part* part = nodes_[n].begin();
    for (; part != nodes_[n].end(); ++part) {
      const uint64_t tokens = found.tokens + part->tokens;
      const Micros deadline = std::min(found.deadline, part->soonest.deadline);
      if (!holds(tokens, deadline)) break;
      found.tokens = tokens;
      found.deadline = deadline;
    }
    if (part == nodes_[n].end()) return found;
    if (level == 0) {
      found.after = {part->first_tokens, part->first_id,
                     part->soonest.deadline};
      return found;
    }
    n = part->child;
  }
}

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_WAITING_TREE_H_
