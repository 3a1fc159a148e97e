// Exported functions: graphs of fills and copies. As on a device, addresses are
// recorded as numbers and resolved when a launch runs: a graph works on the
// memory that is mapped there then, not on the memory that was mapped when the
// graph was made.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/handle_registry.h"
#include "tools/lab/device/stream/graph.h"
#include "tools/lab/device/virtual_memory/device_work.h"

namespace fineserve::driver {

using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Entry;
using emucuda::Graph;
using emucuda::Graphs;
using emucuda::HandleRegistry;
using emucuda::Logged;
using emucuda::Node;

namespace {

using FillNode = CUDA_MEMSET_NODE_PARAMS;
// The nodes of a graph when it was instantiated. Never changed.
using Executable = std::vector<Node>;

// Created at first use and never destroyed, like all driver state.
HandleRegistry<CUgraphExec, Executable>& Executables() {
  static auto& executables = *new HandleRegistry<CUgraphExec, Executable>;
  return executables;
}

// AUTO_FREE_ON_LAUNCH (no graph here allocates) and USE_NODE_PRIORITY.
constexpr unsigned long long kFlagsWithoutEffect = 1 | 8;

CUresult Check(const FillNode& fill) {
  uint64_t row_bytes;
  if (fill.width == 0 || fill.height == 0 ||
      __builtin_mul_overflow(fill.width, fill.elementSize, &row_bytes) ||
      (fill.height > 1 && fill.pitch < row_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t width = fill.elementSize;
  const bool known = width == 1 || width == 2 || width == 4;
  return known && fill.dst % width == 0 ? CUDA_SUCCESS
                                        : CUDA_ERROR_INVALID_VALUE;
}

CUresult Run(int device, const FillNode& fill) {
  const auto& space = emucuda::Addresses();
  const emucuda::Pattern pattern = {fill.value, fill.elementSize};
  for (size_t row = 0; row < fill.height; ++row) {
    const CUresult result =
        emucuda::Fill(space, device, fill.dst + row * fill.pitch, pattern,
                      fill.width * fill.elementSize);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

bool OnDevice(CUmemorytype type, CUdeviceptr address) {
  return (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) &&
         emucuda::IsDevice(address);
}

// Converts a copy node. Supports only copies within the device, of one or more
// rows but no slices.
CUresult ToBox(const CUDA_MEMCPY3D& copy, emucuda::Box* box) {
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!OnDevice(copy.srcMemoryType, copy.srcDevice) ||
      !OnDevice(copy.dstMemoryType, copy.dstDevice) || copy.Depth != 1 ||
      copy.srcZ != 0 || copy.dstZ != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (copy.Height > 1 && (copy.srcPitch < copy.WidthInBytes ||
                          copy.dstPitch < copy.WidthInBytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *box = {.to = emucuda::PlaceOf(copy.dstDevice + copy.dstY * copy.dstPitch +
                                 copy.dstXInBytes),
          .from = emucuda::PlaceOf(copy.srcDevice + copy.srcY * copy.srcPitch +
                                   copy.srcXInBytes),
          .to_pitch = copy.dstPitch,
          .from_pitch = copy.srcPitch,
          .width = copy.WidthInBytes,
          .height = copy.Height,
          .depth = 1};
  return CUDA_SUCCESS;
}

CUresult AddNode(CUgraph graph, Node work, const CUgraphNode* after,
                 size_t after_count, CUgraphNode* node) {
  const std::shared_ptr<Graph> found = Graphs().Find(graph);
  if (found == nullptr || node == nullptr ||
      (after == nullptr && after_count != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return found->Add(std::move(work), after, after_count, node);
}

CUresult Launch(Context& context, CUgraphExec exec, CUstream stream) {
  const std::shared_ptr<Executable> nodes = Executables().Find(exec);
  if (nodes == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int device = context.device();
  return emucuda::SubmitTo(context, stream, emucuda::Wait::kNo,
                           [device, nodes] {
                             for (const Node& node : *nodes) {
                               const CUresult result = node(device);
                               if (result != CUDA_SUCCESS) return result;
                             }
                             return CUDA_SUCCESS;
                           });
}

}  // namespace

CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) {
  return CallInContext(Entry::cuGraphCreate, Logged(flags), [&](Context&) {
    if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *graph = Graphs().Add(std::make_shared<Graph>());
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return CallInContext(Entry::cuGraphDestroy, Logged(graph), [&](Context&) {
    return Graphs().Remove(graph) != nullptr ? CUDA_SUCCESS
                                             : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return CallInContext(Entry::cuGraphGetNodes, Logged(graph), [&](Context&) {
    const std::shared_ptr<Graph> found = Graphs().Find(graph);
    if (found == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::vector<CUgraphNode> all = found->Handles();
    // As CUDA documents, if there is room for more nodes, the rest is null.
    for (size_t i = 0; nodes != nullptr && i < *count; ++i) {
      nodes[i] = i < all.size() ? all[i] : nullptr;
    }
    *count = nodes == nullptr ? all.size() : std::min(*count, all.size());
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph,
                              const CUgraphNode* after, size_t after_count,
                              const CUDA_MEMSET_NODE_PARAMS* params,
                              CUcontext) {
  return CallInContext(
      Entry::cuGraphAddMemsetNode, Logged(graph, after_count), [&](Context&) {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult result = Check(*params);
        if (result != CUDA_SUCCESS) return result;
        const FillNode fill = *params;
        return AddNode(
            graph, [fill](int device) { return Run(device, fill); }, after,
            after_count, node);
      });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph,
                              const CUgraphNode* after, size_t after_count,
                              const CUDA_MEMCPY3D* params, CUcontext) {
  return CallInContext(
      Entry::cuGraphAddMemcpyNode, Logged(graph, after_count), [&](Context&) {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        emucuda::Box box;
        const CUresult result = ToBox(*params, &box);
        if (result != CUDA_SUCCESS) return result;
        return AddNode(
            graph,
            [box](int device) {
              return emucuda::CopyBox(emucuda::Addresses(), device, box);
            },
            after, after_count, node);
      });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                     unsigned long long flags) {
  return CallInContext(
      Entry::cuGraphInstantiateWithFlags, Logged(graph, flags), [&](Context&) {
        const std::shared_ptr<Graph> found = Graphs().Find(graph);
        if (exec == nullptr || found == nullptr) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if ((flags & ~kFlagsWithoutEffect) != 0) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        *exec = Executables().Add(std::make_shared<Executable>(found->Nodes()));
        return CUDA_SUCCESS;
      });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return CallInContext(
      Entry::cuGraphLaunch, Logged(exec, stream),
      [&](Context& context) { return Launch(context, exec, stream); });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return CallInContext(Entry::cuGraphExecDestroy, Logged(exec), [&](Context&) {
    return Executables().Remove(exec) != nullptr ? CUDA_SUCCESS
                                                 : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace fineserve::driver
