#include "tools/lab/device/stream/graph.h"

#include <utility>

namespace fineserve::emucuda {

CUresult Graph::Add(Node work, const driver::CUgraphNode* after,
                    size_t after_count, driver::CUgraphNode* node) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < after_count; ++i) {
    if (!Has(after[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  nodes_.push_back(std::make_unique<Node>(std::move(work)));
  *node = reinterpret_cast<driver::CUgraphNode>(nodes_.back().get());
  return CUDA_SUCCESS;
}

void Graph::Append(Node work) {
  const MutexLock lock(mutex_);
  nodes_.push_back(std::make_unique<Node>(std::move(work)));
}

std::vector<Node> Graph::Nodes() const {
  const MutexLock lock(mutex_);
  std::vector<Node> nodes;
  for (const auto& node : nodes_) nodes.push_back(*node);
  return nodes;
}

std::vector<driver::CUgraphNode> Graph::Handles() const {
  const MutexLock lock(mutex_);
  std::vector<driver::CUgraphNode> handles;
  for (const auto& node : nodes_) {
    handles.push_back(reinterpret_cast<driver::CUgraphNode>(node.get()));
  }
  return handles;
}

bool Graph::Has(driver::CUgraphNode node) const {
  for (const auto& known : nodes_) {
    if (reinterpret_cast<driver::CUgraphNode>(known.get()) == node) return true;
  }
  return false;
}

HandleRegistry<driver::CUgraph, Graph>& Graphs() {
  static auto& graphs = *new HandleRegistry<driver::CUgraph, Graph>;
  return graphs;
}

}  // namespace fineserve::emucuda
