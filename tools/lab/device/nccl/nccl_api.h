#ifndef TOOLS_LAB_DEVICE_NCCL_NCCL_API_H_
#define TOOLS_LAB_DEVICE_NCCL_NCCL_API_H_

// The prototypes of all exported functions, and the communicators behind their
// handles.

#include <memory>

#include "tools/lab/device/machine/handle_registry.h"
#include "tools/lab/device/nccl/api_list.h"
#include "tools/lab/device/nccl/communicator.h"

namespace fineserve::nccl {

// Made at first use and never destroyed.
emucuda::HandleRegistry<ncclComm_t, Communicator>& Communicators();

// Returns the communicator of a handle. If there is none, prints a line to
// stderr and returns null.
std::shared_ptr<Communicator> FindCommunicator(ncclComm_t handle,
                                               const char* function);

#pragma GCC visibility push(default)
extern "C" {
#define EMUCUDA_NCCL_PROTOTYPE(name, args) ncclResult_t name args;
EMUCUDA_NCCL_API(EMUCUDA_NCCL_PROTOTYPE)
#undef EMUCUDA_NCCL_PROTOTYPE

const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
void ncclResetDebugInit();
}
#pragma GCC visibility pop

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_NCCL_API_H_
