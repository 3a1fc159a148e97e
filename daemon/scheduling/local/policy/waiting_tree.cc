#include "daemon/scheduling/local/policy/waiting_tree.h"

namespace fineserve::sched {

template <size_t kMost>
auto LengthTree<kMost>::SoonestOf(const Part* begin, const Part* end) -> Due {
  Due soonest;
  for (; begin != end; ++begin) soonest = std::min(soonest, begin->soonest);
  return soonest;
}

template <size_t kMost>
size_t LengthTree<kMost>::Place(const Node& node, const Waiting& request) {
  const Part* after =
      std::upper_bound(node.begin(), node.end(), request, IsShorter);
  return after == node.begin() ? 0 : after - node.begin() - 1;
}

template <size_t kMost>
void LengthTree<kMost>::InsertAt(Node* node, size_t i, const Part& part) {
  std::copy_backward(node->begin() + i, node->end(), node->end() + 1);
  node->parts[i] = part;
  ++node->count;
}

template <size_t kMost>
void LengthTree<kMost>::EraseAt(Node* node, size_t i) {
  std::copy(node->begin() + i + 1, node->end(), node->begin() + i);
  --node->count;
}

template <size_t kMost>
auto LengthTree<kMost>::New() -> Index {
  if (free_.empty()) {
    nodes_.emplace_back();
    return static_cast<Index>(nodes_.size() - 1);
  }
  const Index n = free_.back();
  free_.pop_back();
  nodes_[n].count = 0;
  return n;
}

template <size_t kMost>
auto LengthTree<kMost>::PartOf(Index child) const -> Part {
  const Node& node = nodes_[child];
  Part part = node.parts[0];
  part.child = child;
  part.tokens = 0;
  for (const Part& p : node) part.tokens += p.tokens;
  part.soonest = SoonestOf(node.begin(), node.end());
  return part;
}

template <size_t kMost>
void LengthTree<kMost>::Split(Index parent, size_t i) {
  const Index right = New();
  const Index left = nodes_[parent].parts[i].child;
  constexpr size_t kHalf = kMost / 2;
  std::copy(nodes_[left].begin() + kHalf, nodes_[left].end(),
            nodes_[right].begin());
  nodes_[right].count = nodes_[left].count - kHalf;
  nodes_[left].count = kHalf;
  nodes_[parent].parts[i] = PartOf(left);
  InsertAt(&nodes_[parent], i + 1, PartOf(right));
}

template <size_t kMost>
void LengthTree<kMost>::Mend(Index parent, size_t i) {
  Node& above = nodes_[parent];
  if (i + 1 == above.count) --i;
  const Index left = above.parts[i].child, right = above.parts[i + 1].child;
  Part both[2 * kMost];
  Part* middle = std::copy(nodes_[left].begin(), nodes_[left].end(), both);
  Part* end = std::copy(nodes_[right].begin(), nodes_[right].end(), middle);
  const size_t count = end - both;
  const bool one = count <= kMost * 3 / 4;
  middle = one ? end : both + count / 2;
  std::copy(both, middle, nodes_[left].begin());
  nodes_[left].count = middle - both;
  above.parts[i] = PartOf(left);
  if (one) {
    EraseAt(&above, i + 1);
    free_.push_back(right);
    return;
  }
  std::copy(middle, end, nodes_[right].begin());
  nodes_[right].count = end - middle;
  above.parts[i + 1] = PartOf(right);
}

// Fetches all cache lines of a node at once, rather than one after the other as
// they are searched.
template <size_t kMost>
void LengthTree<kMost>::Prefetch(Index n) const {
  const char* node = reinterpret_cast<const char*>(&nodes_[n]);
  for (size_t i = 0; i < sizeof(Node); i += 64) __builtin_prefetch(node + i);
}

template <size_t kMost>
void LengthTree<kMost>::Insert(const Waiting& request) {
  const Due due{request.deadline, request.id};
  ++size_;
  if (nodes_[root_].count == kMost) {
    const Index above = New();
    InsertAt(&nodes_[above], 0, PartOf(root_));
    root_ = above;
    ++height_;
    Split(root_, 0);
  }
  Index n = root_;
  for (size_t level = height_; level > 0; --level) {
    size_t i = Place(nodes_[n], request);
    const Index child = nodes_[n].parts[i].child;
    Prefetch(child);
    if (nodes_[child].count == kMost) {
      Split(n, i);
      // The request never goes into the part before, which may be full.
      if (!IsShorter(request, nodes_[n].parts[i + 1])) ++i;
    }
    Part& part = nodes_[n].parts[i];
    if (IsShorter(request, part)) {
      part.first_tokens = request.tokens;
      part.first_id = request.id;
    }
    part.tokens += request.tokens;
    part.soonest = std::min(part.soonest, due);
    n = part.child;
  }
  Node& leaf = nodes_[n];
  const Part* after =
      std::upper_bound(leaf.begin(), leaf.end(), request, IsShorter);
  InsertAt(&leaf, after - leaf.begin(),
           {request.tokens, 0, request.id, request.tokens, due});
}

template <size_t kMost>
void LengthTree<kMost>::Erase(Index n, size_t level, const Waiting& request) {
  Node& node = nodes_[n];
  const size_t i = Place(node, request);
  if (level == 0) return EraseAt(&node, i);
  Part& part = node.parts[i];
  const Node& child = nodes_[part.child];
  Prefetch(part.child);
  Erase(part.child, level - 1, request);
  part.tokens -= request.tokens;
  if (part.soonest.id == request.id) {
    part.soonest = SoonestOf(child.begin(), child.end());
  }
  if (child.count < kFewest) Mend(n, i);
}

template <size_t kMost>
void LengthTree<kMost>::Erase(const Waiting& request) {
  --size_;
  Erase(root_, height_, request);
  if (height_ == 0 || nodes_[root_].count > 1) return;
  free_.push_back(root_);
  root_ = nodes_[root_].parts[0].child;
  --height_;
}

template <size_t kMost>
absl::optional<RequestId> LengthTree<kMost>::Soonest(
    const absl::optional<Waiting>& after) const {
  Due found;
  Index n = root_;
  for (size_t level = height_;; --level) {
    const Node& node = nodes_[n];
    // All requests in parts before `i` are shorter.
    const size_t i = after ? Place(node, *after) : node.count;
    found = std::min(found, SoonestOf(node.begin(), node.begin() + i));
    if (!after || level == 0) break;
    n = node.parts[i].child;
  }
  if (found.id == Due{}.id) return absl::nullopt;
  return found.id;
}

template class LengthTree<48>;
template class LengthTree<8>;  // for tests

}  // namespace fineserve::sched
