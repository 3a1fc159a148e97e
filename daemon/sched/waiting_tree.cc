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

const Waiting& Earlier(const Waiting& a, const Waiting& b) {
  return Sooner(b, a) ? b : a;
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
  nodes_[n] = {request, request, request.tokens, PriorityOf(request.id), 0, 0};
  return n;
}

void WaitingTree::Update(Index n) {
  Node& node = nodes_[n];
  const Node& left = nodes_[node.left];
  const Node& right = nodes_[node.right];
  node.tokens = left.tokens + node.request.tokens + right.tokens;
  node.soonest = Earlier(node.request, Earlier(left.soonest, right.soonest));
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

void WaitingTree::Insert(const Waiting& request) {
  const Index n = New(request);
  const auto [left, right] = Split(root_, request);
  root_ = Merge(Merge(left, n), right);
}

bool WaitingTree::Contains(const Waiting& request) const {
  for (Index n = root_; n != 0;) {
    const Node& node = nodes_[n];
    if (Shorter(request, node.request)) {
      n = node.left;
    } else if (Shorter(node.request, request)) {
      n = node.right;
    } else {
      return true;
    }
  }
  return false;
}

WaitingTree::Index WaitingTree::Without(Index n, const Waiting& request) {
  Node& node = nodes_[n];
  if (Shorter(request, node.request)) {
    node.left = Without(node.left, request);
  } else if (Shorter(node.request, request)) {
    node.right = Without(node.right, request);
  } else {
    free_.push_back(n);
    return Merge(node.left, node.right);
  }
  Update(n);
  return n;
}

bool WaitingTree::Erase(const Waiting& request) {
  if (!Contains(request)) return false;
  root_ = Without(root_, request);
  return true;
}

absl::optional<Waiting> WaitingTree::Soonest(const Waiting& last) const {
  absl::optional<Waiting> found;
  const auto consider = [&](const Waiting& request) {
    if (!found || Sooner(request, *found)) found = request;
  };
  for (Index n = root_; n != 0;) {
    const Node& node = nodes_[n];
    if (Shorter(last, node.request)) {
      n = node.left;
      continue;
    }
    consider(node.request);
    if (node.left != 0) consider(nodes_[node.left].soonest);
    n = node.right;
  }
  return found;
}

}  // namespace fineserve::sched
