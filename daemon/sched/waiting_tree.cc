#include "daemon/sched/waiting_tree.h"

namespace fineserve::sched {
namespace {

// splitmix64's finisher: ids that follow each other get unrelated priorities.
uint32_t PriorityOf(RequestId id) {
  uint64_t x = Number(id) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(x >> 32);
}

}  // namespace

WaitingTree::Index WaitingTree::New(const Waiting& request) {
  Index n;
  if (free_.empty()) {
    n = static_cast<Index>(nodes_.size());
    nodes_.emplace_back();
  } else {
    n = free_.back();
    free_.pop_back();
  }
  Node& node = nodes_[n];
  node.request = request;
  node.priority = PriorityOf(request.id);
  node.left = node.right = 0;
  Update(n);
  return n;
}

void WaitingTree::Update(Index n) {
  Node& node = nodes_[n];
  const Node& left = nodes_[node.left];
  const Node& right = nodes_[node.right];
  node.tokens = left.tokens + node.request.tokens + right.tokens;
  node.soonest = std::min({Due{node.request.deadline, node.request.id},
                           left.soonest, right.soonest});
}

WaitingTree::Index WaitingTree::Merge(Index left, Index right) {
  if (left == 0) return right;
  if (right == 0) return left;
  if (nodes_[left].priority > nodes_[right].priority) {
    nodes_[left].right = Merge(nodes_[left].right, right);
    Update(left);
    return left;
  }
  nodes_[right].left = Merge(left, nodes_[right].left);
  Update(right);
  return right;
}

std::pair<WaitingTree::Index, WaitingTree::Index> WaitingTree::Split(
    Index n, const Waiting& request) {
  if (n == 0) return {0, 0};
  Node& node = nodes_[n];
  if (Shorter(node.request, request)) {
    const auto [middle, right] = Split(node.right, request);
    node.right = middle;
    Update(n);
    return {n, right};
  }
  const auto [left, middle] = Split(node.left, request);
  node.left = middle;
  Update(n);
  return {left, n};
}

WaitingTree::Index WaitingTree::With(Index n, Index added) {
  const Waiting& request = nodes_[added].request;
  if (n == 0) return added;
  Node& node = nodes_[n];
  if (node.priority < nodes_[added].priority) {
    const auto [left, right] = Split(n, request);
    nodes_[added].left = left;
    nodes_[added].right = right;
    Update(added);
    return added;
  }
  // What `n` knows of its subtree follows without a look at the other child.
  node.tokens += request.tokens;
  node.soonest = std::min(node.soonest, nodes_[added].soonest);
  Index& child = Shorter(request, node.request) ? node.left : node.right;
  child = With(child, added);
  return n;
}

void WaitingTree::Insert(const Waiting& request) {
  const Index added = New(request);
  root_ = With(root_, added);
}

WaitingTree::Index WaitingTree::Without(Index n, const Waiting& request,
                                        bool* found) {
  if (n == 0) return 0;
  Node& node = nodes_[n];
  if (node.request.id == request.id && node.request.tokens == request.tokens) {
    *found = true;
    free_.push_back(n);
    return Merge(node.left, node.right);
  }
  Index& child = Shorter(request, node.request) ? node.left : node.right;
  child = Without(child, request, found);
  if (!*found) return n;
  if (node.soonest.id == request.id) {
    Update(n);
  } else {
    node.tokens -= request.tokens;
  }
  return n;
}

bool WaitingTree::Erase(const Waiting& request) {
  bool found = false;
  root_ = Without(root_, request, &found);
  return found;
}

absl::optional<RequestId> WaitingTree::Soonest(const Waiting& last) const {
  Due found;
  for (Index n = root_; n != 0;) {
    const Node& node = nodes_[n];
    if (Shorter(last, node.request)) {
      n = node.left;
      continue;
    }
    found = std::min({found, Due{node.request.deadline, node.request.id},
                      nodes_[node.left].soonest});
    n = node.right;
  }
  if (found.id == Due{}.id) return absl::nullopt;
  return found.id;
}

}  // namespace fineserve::sched
