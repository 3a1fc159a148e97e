// Exported functions: captures and graphs, which the driver implements.

#include "tools/lab/device/cudart/runtime_api.h"

namespace fineserve::cudart {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode) {
  return Forward<&DriverCalls::cuStreamBeginCapture>(stream, mode);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Forward<&DriverCalls::cuStreamEndCapture>(stream, graph);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  cudaStreamCaptureStatus* status) {
  return Forward<&DriverCalls::cuStreamIsCapturing>(
      stream, reinterpret_cast<int*>(status));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const void** dependencies,
                                     const void** edges, size_t* count) {
  return Forward<&DriverCalls::cuStreamGetCaptureInfo>(
      stream, reinterpret_cast<int*>(status), id, graph, dependencies, edges,
      count);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return Forward<&DriverCalls::cuThreadExchangeStreamCaptureMode>(mode);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return Forward<&DriverCalls::cuGraphInstantiateWithFlags>(exec, graph, flags);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec,
                                          cudaGraph_t graph,
                                          unsigned long long flags) {
  return Forward<&DriverCalls::cuGraphInstantiateWithFlags>(exec, graph, flags);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                              size_t* count) {
  return Forward<&DriverCalls::cuGraphGetNodes>(graph, nodes, count);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return Forward<&DriverCalls::cuGraphLaunch>(exec, stream);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return Forward<&DriverCalls::cuGraphExecDestroy>(exec);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Forward<&DriverCalls::cuGraphDestroy>(graph);
}

}  // namespace fineserve::cudart
