// Exported functions for things that the emulated device cannot do: linking of
// device code, arrays, decompression, and the launch functions of former
// releases.

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"

namespace fineserve::driver {
namespace {

CUresult Refuse(emucuda::Entry entry) {
  return emucuda::Call(entry, emucuda::Require::kInit,
                       [] { return CUDA_ERROR_NOT_SUPPORTED; });
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int /*count*/, CUjit_option* /*options*/,
                         void** /*values*/, CUlinkState* /*state*/) {
  return Refuse(emucuda::Entry::cuLinkCreate_v2);
}

CUresult cuLinkAddData_v2(CUlinkState /*state*/, CUjitInputType /*type*/,
                          void* /*data*/, size_t /*bytes*/,
                          const char* /*name*/, unsigned int /*count*/,
                          CUjit_option* /*options*/, void** /*values*/) {
  return Refuse(emucuda::Entry::cuLinkAddData_v2);
}

CUresult cuLinkComplete(CUlinkState /*state*/, void** /*code*/,
                        size_t* /*bytes*/) {
  return Refuse(emucuda::Entry::cuLinkComplete);
}

CUresult cuLinkDestroy(CUlinkState /*state*/) {
  return Refuse(emucuda::Entry::cuLinkDestroy);
}

CUresult cuMemcpyDtoA_v2(CUarray /*to*/, size_t /*offset*/,
                         CUdeviceptr /*from*/, size_t /*bytes*/) {
  return Refuse(emucuda::Entry::cuMemcpyDtoA_v2);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr /*to*/, CUarray /*from*/,
                         size_t /*offset*/, size_t /*bytes*/) {
  return Refuse(emucuda::Entry::cuMemcpyAtoD_v2);
}

CUresult cuMemBatchDecompressAsync(CUmemDecompressParams* /*streams*/,
                                   size_t /*count*/, unsigned int /*flags*/,
                                   size_t* /*failed*/, CUstream /*stream*/) {
  return Refuse(emucuda::Entry::cuMemBatchDecompressAsync);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* /*launches*/,
                                              unsigned int /*count*/,
                                              unsigned int /*flags*/) {
  return Refuse(emucuda::Entry::cuLaunchCooperativeKernelMultiDevice);
}

CUresult cuLaunch(CUfunction /*function*/) {
  return Refuse(emucuda::Entry::cuLaunch);
}

CUresult cuLaunchGrid(CUfunction /*function*/, int /*grid_x*/, int /*grid_y*/) {
  return Refuse(emucuda::Entry::cuLaunchGrid);
}

CUresult cuLaunchGridAsync(CUfunction /*function*/, int /*grid_x*/,
                           int /*grid_y*/, CUstream /*stream*/) {
  return Refuse(emucuda::Entry::cuLaunchGridAsync);
}

CUresult cuStreamBeginCaptureToGraph(CUstream /*stream*/, CUgraph /*graph*/,
                                     const CUgraphNode* /*dependencies*/,
                                     const CUgraphEdgeData* /*edges*/,
                                     size_t /*count*/,
                                     CUstreamCaptureMode /*mode*/) {
  return Refuse(emucuda::Entry::cuStreamBeginCaptureToGraph);
}

}  // namespace fineserve::driver
