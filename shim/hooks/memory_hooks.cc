// Hooks of calls about memory that may be ours, which the program names by its
// handle (the rest of the cuMemCreate family) or by an address within it.

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/hooks/process_state.h"
#include "shim/host/real_driver.h"

namespace fineserve::driver {

using shim::CallOptional;
using shim::g_mappings;
using shim::g_ranges;
using shim::g_redirector;
using shim::Hook;
using shim::Original;

namespace {

// For calls about handles: only a process that holds some of ours pays more
// than a load.
template <typename Ask>
CUresult AskIfHandles(Hook hook, const Original& original, Ask ask) {
  return g_redirector.holds_handles() ? shim::AskRedirector(hook, original, ask)
                                      : shim::Pass(original);
}

// For calls about an address.
template <typename Ask>
CUresult AskIfHeld(CUdeviceptr address, Hook hook, const Original& original,
                   Ask ask) {
  const bool may_hold =
      g_ranges.MayHold(address) || g_mappings.MayHold(address);
  return may_hold && !g_redirector.forked()
             ? shim::AskRedirector(hook, original, ask)
             : shim::Pass(original);
}

}  // namespace

FINESERVE_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemRelease, handle);
  };
  return AskIfHandles(
      Hook::kMemRelease, Original(call), [&](const shim::Driver& real) {
        return g_redirector.handles().Release(real, handle, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes,
                                   size_t offset,
                                   CUmemGenericAllocationHandle handle,
                                   unsigned long long flags) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemMap, address, bytes, offset, handle, flags);
  };
  return AskIfHandles(
      Hook::kMemMap, Original(call), [&](const shim::Driver& real) {
        return g_redirector.handles().Map(real, address, bytes, offset, handle,
                                          flags, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemUnmap, address, bytes);
  };
  return AskIfHandles(Hook::kMemUnmap, Original(call),
                      [&](const shim::Driver& real) {
                        return g_redirector.handles().Unmap(
                            real, address, bytes, Original(call));
                      });
}

FINESERVE_EXPORT CUresult cuMemExportToShareableHandle(
    void* shareable, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemExportToShareableHandle, shareable, handle,
                        type, flags);
  };
  return AskIfHandles(
      Hook::kMemExport, Original(call), [&](const shim::Driver& real) {
        return g_redirector.handles().Export(real, handle, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemGetAllocationPropertiesFromHandle, prop,
                        handle);
  };
  return AskIfHandles(Hook::kMemProperties, Original(call),
                      [&](const shim::Driver& real) {
                        return g_redirector.handles().Properties(
                            real, prop, handle, Original(call));
                      });
}

FINESERVE_EXPORT CUresult cuMemRetainAllocationHandle(
    CUmemGenericAllocationHandle* handle, void* address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemRetainAllocationHandle, handle, address);
  };
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  return AskIfHeld(
      at, Hook::kMemRetain, Original(call), [&](const shim::Driver& real) {
        return g_redirector.handles().Retain(real, handle, at, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base,
                                                  size_t* bytes,
                                                  CUdeviceptr address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemGetAddressRange_v2, base, bytes, address);
  };
  return AskIfHeld(address, Hook::kMemAddressRange, Original(call),
                   [&](const shim::Driver& real) {
                     return g_redirector.queries().AddressRange(
                         real.entry, base, bytes, address, Original(call));
                   });
}

FINESERVE_EXPORT CUresult cuPointerGetAttribute(void* value,
                                                CUpointer_attribute attribute,
                                                CUdeviceptr address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuPointerGetAttribute, value, attribute, address);
  };
  return AskIfHeld(address, Hook::kPointerAttribute, Original(call),
                   [&](const shim::Driver& real) {
                     return g_redirector.queries().Attribute(
                         real.entry, value, attribute, address, Original(call));
                   });
}

FINESERVE_EXPORT CUresult
cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes,
                       void** values, CUdeviceptr address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuPointerGetAttributes, count, attributes, values,
                        address);
  };
  return AskIfHeld(address, Hook::kPointerAttributes, Original(call),
                   [&](const shim::Driver& real) {
                     return g_redirector.queries().Attributes(
                         real.entry, count, attributes, values, address,
                         Original(call));
                   });
}

// The answer is the driver's for mapped memory, which has no legacy IPC.
FINESERVE_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle,
                                            CUdeviceptr address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuIpcGetMemHandle, handle, address);
  };
  return AskIfHeld(address, Hook::kIpcGetMemHandle, Original(call),
                   [&](const shim::Driver& real) {
                     return g_redirector.handles().ShareAddress(
                         real, Hook::kIpcGetMemHandle, address,
                         CUDA_ERROR_INVALID_VALUE, Original(call));
                   });
}

FINESERVE_EXPORT CUresult cuMemGetHandleForAddressRange(
    void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
    unsigned long long flags) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemGetHandleForAddressRange, handle, address,
                        bytes, type, flags);
  };
  return AskIfHeld(address, Hook::kHandleForRange, Original(call),
                   [&](const shim::Driver& real) {
                     return g_redirector.handles().ShareAddress(
                         real, Hook::kHandleForRange, address,
                         CUDA_ERROR_NOT_SUPPORTED, Original(call));
                   });
}

}  // namespace fineserve::driver
