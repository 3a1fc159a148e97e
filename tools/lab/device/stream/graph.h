#ifndef TOOLS_LAB_DEVICE_STREAM_GRAPH_H_
#define TOOLS_LAB_DEVICE_STREAM_GRAPH_H_

#include <functional>
#include <memory>
#include <vector>

#include "kernels/driver/cuda_graph_types.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/handle_registry.h"

namespace fineserve::emucuda {

// A node's work on a device.
using Node = std::function<CUresult(int device)>;

// A node depends only on nodes that were added before it, so the order of
// insertion is a valid order of execution. Thread-safe.
class Graph {
 public:
  // Adds a node, whose handle is the address of its allocation. Returns
  // INVALID_VALUE if a dependency is not a node of this graph.
  CUresult Add(Node work, const driver::CUgraphNode* after, size_t after_count,
               driver::CUgraphNode* node);
  // Adds a node after all others.
  void Append(Node work);

  std::vector<Node> Nodes() const;
  std::vector<driver::CUgraphNode> Handles() const;

 private:
  bool Has(driver::CUgraphNode node) const EMUCUDA_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Node>> nodes_ EMUCUDA_GUARDED_BY(mutex_);
};

// All graphs of the program. Created at first use and never destroyed.
HandleRegistry<driver::CUgraph, Graph>& Graphs();

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_STREAM_GRAPH_H_
