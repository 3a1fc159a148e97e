// Exported functions: linking of device code, which the emulated driver cannot.

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"

namespace fineserve::driver {
namespace {

CUresult RefuseToLink(emucuda::Entry entry) {
  return emucuda::Call(entry, emucuda::Require::kInit,
                       [] { return CUDA_ERROR_NOT_SUPPORTED; });
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int /*count*/, CUjit_option* /*options*/,
                         void** /*values*/, CUlinkState* /*state*/) {
  return RefuseToLink(emucuda::Entry::cuLinkCreate_v2);
}

CUresult cuLinkAddData_v2(CUlinkState /*state*/, CUjitInputType /*type*/,
                          void* /*data*/, size_t /*bytes*/,
                          const char* /*name*/, unsigned int /*count*/,
                          CUjit_option* /*options*/, void** /*values*/) {
  return RefuseToLink(emucuda::Entry::cuLinkAddData_v2);
}

CUresult cuLinkComplete(CUlinkState /*state*/, void** /*code*/,
                        size_t* /*bytes*/) {
  return RefuseToLink(emucuda::Entry::cuLinkComplete);
}

CUresult cuLinkDestroy(CUlinkState /*state*/) {
  return RefuseToLink(emucuda::Entry::cuLinkDestroy);
}

}  // namespace fineserve::driver
