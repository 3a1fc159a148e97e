// Exported functions: legacy sharing between processes. The memory is really
// shared. Memory of the VMM calls and of pools is shared through other handles,
// so these functions refuse it, as a real driver does.

#include "tools/lab/device/allocations/legacy_heap.h"
#include "tools/lab/device/allocations/opened_memory.h"
#include "tools/lab/device/allocations/shared_block.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/machine/handle_registry.h"
#include "tools/lab/device/stream/context.h"
#include "tools/lab/device/stream/event.h"

namespace fineserve::driver {

using emucuda::BlockKind;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Entry;
using emucuda::Logged;
using emucuda::MemoryBlock;

namespace {

CUresult OpenMemory(Entry entry, CUdeviceptr* address,
                    const CUipcMemHandle& handle, unsigned flags) {
  return CallInContext(entry, Logged(flags), [&](Context& context) {
    if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return emucuda::Opened().Open(emucuda::Devices(), context,
                                  emucuda::Decode(handle), address);
  });
}

}  // namespace

// The handle is for the whole allocation around the address.
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return CallInContext(
      Entry::cuIpcGetMemHandle, Logged(address), [&](Context&) {
        MemoryBlock block;
        if (handle == nullptr || !emucuda::Heap().Find(address, &block) ||
            block.kind != BlockKind::kDevice) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        Encode(Share(emucuda::Devices(), block), handle);
        return CUDA_SUCCESS;
      });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                            unsigned int flags) {
  return OpenMemory(Entry::cuIpcOpenMemHandle, address, handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle,
                               unsigned int flags) {
  return OpenMemory(Entry::cuIpcOpenMemHandle_v2, address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return CallInContext(Entry::cuIpcCloseMemHandle, Logged(address),
                       [&](Context& context) {
                         if (const CUresult result = context.Synchronize())
                           return result;
                         return emucuda::Opened().Close(address);
                       });
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  return CallInContext(Entry::cuIpcGetEventHandle, Logged(event),
                       [&](Context&) {
                         const auto found = emucuda::Events().Find(event);
                         if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                         if (handle == nullptr || found->shared() == nullptr) {
                           return CUDA_ERROR_INVALID_VALUE;
                         }
                         found->shared()->Export(handle);
                         return CUDA_SUCCESS;
                       });
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  return CallInContext(Entry::cuIpcOpenEventHandle, [&](Context& context) {
    if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto shared = emucuda::SharedEvent::Import(handle);
    if (shared == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *event = emucuda::Events().Add(std::make_shared<emucuda::Event>(
        context, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS,
        std::move(shared)));
    return CUDA_SUCCESS;
  });
}

}  // namespace fineserve::driver
