// Exported functions: graphs of fills. Addresses are recorded as numbers and
// resolved when a launch runs, as on a device: a graph sees what is mapped
// there then, not what was there when it was made.

#include <memory>
#include <utility>
#include <vector>

#include "tools/emucuda/call.h"
#include "tools/emucuda/device_work.h"
#include "tools/emucuda/driver.h"
#include "tools/emucuda/handle_registry.h"
#include "tools/emucuda/mutex.h"
#include "tools/emucuda/prototypes.h"
#include "tools/emucuda/stream_handle.h"

namespace fineserve::driver {

using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Driver;
using emucuda::Entry;
using emucuda::HandleRegistry;
using emucuda::Mutex;
using emucuda::MutexLock;

namespace {

using Fill = CUDA_MEMSET_NODE_PARAMS;

// A node depends only on nodes that were there before it, so that the order of
// insertion is an order of execution. Thread-safe.
class Graph {
 public:
  // INVALID_VALUE if a dependency is no node of this graph. A node's handle is
  // the address of its allocation.
  CUresult Add(const Fill& fill, const CUgraphNode* after, size_t after_count,
               CUgraphNode* node) {
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < after_count; ++i) {
      if (!Has(after[i])) return CUDA_ERROR_INVALID_VALUE;
    }
    nodes_.push_back(std::make_unique<Fill>(fill));
    *node = reinterpret_cast<CUgraphNode>(nodes_.back().get());
    return CUDA_SUCCESS;
  }

  std::vector<Fill> Fills() const {
    const MutexLock lock(mutex_);
    std::vector<Fill> fills;
    for (const auto& node : nodes_) fills.push_back(*node);
    return fills;
  }

 private:
  bool Has(CUgraphNode node) const EMUCUDA_REQUIRES(mutex_) {
    for (const auto& known : nodes_) {
      if (reinterpret_cast<CUgraphNode>(known.get()) == node) return true;
    }
    return false;
  }

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Fill>> nodes_ EMUCUDA_GUARDED_BY(mutex_);
};

// What a graph was when it was instantiated; never changed.
using Executable = std::vector<Fill>;

// As all driver state: made at first use, never destroyed.
HandleRegistry<CUgraph, Graph>& Graphs() {
  static auto& graphs = *new HandleRegistry<CUgraph, Graph>;
  return graphs;
}
HandleRegistry<CUgraphExec, Executable>& Executables() {
  static auto& executables = *new HandleRegistry<CUgraphExec, Executable>;
  return executables;
}

CUresult Check(const Fill& fill) {
  uint64_t row_bytes;
  if (fill.width == 0 || fill.height == 0 ||
      __builtin_mul_overflow(fill.width, fill.elementSize, &row_bytes) ||
      (fill.height > 1 && fill.pitch < row_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (fill.elementSize) {
    case 1:
    case 4:
      return fill.dst % fill.elementSize == 0 ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE;
    case 2:
      return CUDA_ERROR_NOT_SUPPORTED;  // the emulated device has no such fill
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Run(int device, const Fill& fill) {
  const auto& space = Driver::Get().space();
  const emucuda::Pattern pattern = {fill.value, fill.elementSize};
  for (size_t row = 0; row < fill.height; ++row) {
    const CUresult result =
        emucuda::Fill(space, device, fill.dst + row * fill.pitch, pattern,
                      fill.width * fill.elementSize);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Launch(Context& context, CUgraphExec exec, CUstream handle) {
  const std::shared_ptr<Executable> fills = Executables().Find(exec);
  const auto stream = emucuda::FindStream(context, handle);
  if (fills == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int device = stream->context().device();
  return stream->context().SubmitWork(*stream, [device, fills] {
    for (const Fill& fill : *fills) {
      const CUresult result = Run(device, fill);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) {
  return CallInContext(
      Entry::cuGraphCreate,
      [&](Context&) {
        if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        *graph = Graphs().Add(std::make_shared<Graph>());
        return CUDA_SUCCESS;
      },
      flags);
}

CUresult cuGraphDestroy(CUgraph graph) {
  return CallInContext(
      Entry::cuGraphDestroy,
      [&](Context&) {
        return Graphs().Remove(graph) != nullptr ? CUDA_SUCCESS
                                                 : CUDA_ERROR_INVALID_VALUE;
      },
      graph);
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph,
                              const CUgraphNode* after, size_t after_count,
                              const CUDA_MEMSET_NODE_PARAMS* params,
                              CUcontext) {
  return CallInContext(
      Entry::cuGraphAddMemsetNode,
      [&](Context&) {
        const std::shared_ptr<Graph> found = Graphs().Find(graph);
        if (found == nullptr || node == nullptr || params == nullptr ||
            (after == nullptr && after_count != 0)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult result = Check(*params);
        return result == CUDA_SUCCESS
                   ? found->Add(*params, after, after_count, node)
                   : result;
      },
      graph, after_count);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                     unsigned long long flags) {
  return CallInContext(
      Entry::cuGraphInstantiateWithFlags,
      [&](Context&) {
        const std::shared_ptr<Graph> found = Graphs().Find(graph);
        if (exec == nullptr || found == nullptr) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if (flags != 0) return CUDA_ERROR_NOT_SUPPORTED;
        *exec = Executables().Add(std::make_shared<Executable>(found->Fills()));
        return CUDA_SUCCESS;
      },
      graph, flags);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return CallInContext(
      Entry::cuGraphLaunch,
      [&](Context& context) { return Launch(context, exec, stream); }, exec,
      stream);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return CallInContext(
      Entry::cuGraphExecDestroy,
      [&](Context&) {
        return Executables().Remove(exec) != nullptr ? CUDA_SUCCESS
                                                     : CUDA_ERROR_INVALID_VALUE;
      },
      exec);
}

}  // namespace fineserve::driver
