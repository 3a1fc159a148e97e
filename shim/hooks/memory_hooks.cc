// Hooks of calls about memory that may be ours, given by its handle (the rest
// of the cuMemCreate family) or by an address within it.

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/gate/gate.h"
#include "shim/hooks/gated_hooks.h"
#include "shim/hooks/process_state.h"
#include "shim/host/environment.h"
#include "shim/host/real_driver.h"

namespace fineserve::driver {

using shim::CallOf;
using shim::g_mappings;
using shim::g_ranges;
using shim::g_redirector;
using shim::Hook;
using shim::Original;
using shim::PointerQueries;
using shim::Redirector;
using shim::VirtualMemory;

namespace {

// Returns the result of `(object.*method)(entry, arguments..., original)`.
template <typename Object, typename Method, typename... Arguments>
CUresult Ask(Hook hook, const Original& original, Object& object, Method method,
             Arguments... arguments) {
  return shim::AskRedirector(hook, original, [&](const shim::Driver& real) {
    return (object.*method)(real.entry, arguments..., original);
  });
}

// Handles a call about a memory handle. A process that holds none of our
// handles pays one load.
template <typename... Arguments>
CUresult AskAboutHandle(Hook hook, const Original& original,
                        Arguments&&... arguments) {
  return g_redirector.virtual_memory().empty()
             ? shim::Pass(original)
             : Ask(hook, original, arguments...);
}

// Makes a call about an address wait like one that touches memory: while an
// engine is evicted, the driver does not know its addresses.
template <typename Call>
CUresult PassGate(Call call) {
  if (!shim::IsEvictable()) return call();
  return shim::g_gate.Pass(call, driver::CUDA_ERROR_DEINITIALIZED);
}

// Handles a call about an address.
template <typename... Arguments>
CUresult AskAboutAddress(CUdeviceptr address, Hook hook,
                         const Original& original, Arguments&&... arguments) {
  const bool may_hold =
      g_ranges.MayHold(address) || g_mappings.MayHold(address);
  return may_hold ? PassGate([&] { return Ask(hook, original, arguments...); })
                  : shim::Pass(original);
}

// Opens handles that the shim has made, which the driver does not know.
CUresult OpenIpc(Hook hook, const Original& original, CUdeviceptr* address,
                 const CUipcMemHandle& handle, unsigned flags) {
  if (shim::Disabled() || !shim::OpenedMemory::IsOurs(handle)) {
    return shim::Pass(original);
  }
  return shim::AskRedirector(hook, original, [&](const shim::Driver& real) {
    return g_redirector.opened().Open(real, handle, flags, address);
  });
}

VirtualMemory& Memory() { return g_redirector.virtual_memory(); }
const PointerQueries& Queries() { return g_redirector.queries(); }

}  // namespace

FINESERVE_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const auto call = CallOf<&EntryPoints::cuMemRelease>(handle);
  return g_redirector.has_created()
             ? Ask(Hook::kMemRelease, Original(call), g_redirector,
                   &Redirector::Release, handle)
             : shim::Pass(Original(call));
}

FINESERVE_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes,
                                   size_t offset,
                                   CUmemGenericAllocationHandle handle,
                                   unsigned long long flags) {
  const auto call =
      CallOf<&EntryPoints::cuMemMap>(address, bytes, offset, handle, flags);
  return AskAboutHandle(Hook::kMemMap, Original(call), Memory(),
                        &VirtualMemory::Map, address, bytes, offset, handle,
                        flags);
}

FINESERVE_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const auto call = CallOf<&EntryPoints::cuMemUnmap>(address, bytes);
  return AskAboutHandle(Hook::kMemUnmap, Original(call), Memory(),
                        &VirtualMemory::Unmap, address, bytes);
}

FINESERVE_EXPORT CUresult cuMemExportToShareableHandle(
    void* shareable, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags) {
  const auto call = CallOf<&EntryPoints::cuMemExportToShareableHandle>(
      shareable, handle, type, flags);
  return AskAboutHandle(Hook::kMemExport, Original(call), g_redirector,
                        &Redirector::ShareHandle, Hook::kMemExport, handle);
}

FINESERVE_EXPORT CUresult
cuMulticastBindMem(CUmemGenericAllocationHandle multicast,
                   size_t multicast_offset, CUmemGenericAllocationHandle handle,
                   size_t offset, size_t bytes, unsigned long long flags) {
  const auto call = CallOf<&EntryPoints::cuMulticastBindMem>(
      multicast, multicast_offset, handle, offset, bytes, flags);
  return AskAboutHandle(Hook::kMulticastBindMem, Original(call), g_redirector,
                        &Redirector::ShareHandle, Hook::kMulticastBindMem,
                        handle);
}

FINESERVE_EXPORT CUresult cuMulticastBindAddr(
    CUmemGenericAllocationHandle multicast, size_t multicast_offset,
    CUdeviceptr address, size_t bytes, unsigned long long flags) {
  const auto call = CallOf<&EntryPoints::cuMulticastBindAddr>(
      multicast, multicast_offset, address, bytes, flags);
  return AskAboutAddress(address, Hook::kMulticastBindAddr, Original(call),
                         g_redirector, &Redirector::ShareAddress,
                         Hook::kMulticastBindAddr, address,
                         CUDA_ERROR_NOT_SUPPORTED);
}

FINESERVE_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  const auto call =
      CallOf<&EntryPoints::cuMemGetAllocationPropertiesFromHandle>(prop,
                                                                   handle);
  return AskAboutHandle(Hook::kMemProperties, Original(call), Memory(),
                        &VirtualMemory::Properties, prop, handle);
}

FINESERVE_EXPORT CUresult cuMemRetainAllocationHandle(
    CUmemGenericAllocationHandle* handle, void* address) {
  const auto call =
      CallOf<&EntryPoints::cuMemRetainAllocationHandle>(handle, address);
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  return AskAboutAddress(at, Hook::kMemRetain, Original(call), Memory(),
                         &VirtualMemory::Retain, handle, at);
}

FINESERVE_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base,
                                                  size_t* bytes,
                                                  CUdeviceptr address) {
  const auto call =
      CallOf<&EntryPoints::cuMemGetAddressRange_v2>(base, bytes, address);
  return AskAboutAddress(address, Hook::kMemAddressRange, Original(call),
                         Queries(), &PointerQueries::AddressRange, base, bytes,
                         address);
}

FINESERVE_EXPORT CUresult cuPointerGetAttribute(void* value,
                                                CUpointer_attribute attribute,
                                                CUdeviceptr address) {
  const auto call =
      CallOf<&EntryPoints::cuPointerGetAttribute>(value, attribute, address);
  return AskAboutAddress(address, Hook::kPointerAttribute, Original(call),
                         Queries(), &PointerQueries::Attribute, value,
                         attribute, address);
}

FINESERVE_EXPORT CUresult
cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes,
                       void** values, CUdeviceptr address) {
  const auto call = CallOf<&EntryPoints::cuPointerGetAttributes>(
      count, attributes, values, address);
  return AskAboutAddress(address, Hook::kPointerAttributes, Original(call),
                         Queries(), &PointerQueries::Attributes, count,
                         attributes, values, address);
}

FINESERVE_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle,
                                            CUdeviceptr address) {
  const auto call = CallOf<&EntryPoints::cuIpcGetMemHandle>(handle, address);
  const Original original(call);
  if (!g_ranges.MayHold(address) && !g_mappings.MayHold(address)) {
    return shim::Pass(original);
  }
  return shim::AskRedirector(
      Hook::kIpcGetMemHandle, original, [&](const shim::Driver& real) {
        return shim::g_sharer.MakeHandle(real, handle, address, original);
      });
}

FINESERVE_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* address,
                                             CUipcMemHandle handle,
                                             unsigned int flags) {
  const auto call =
      CallOf<&EntryPoints::cuIpcOpenMemHandle>(address, handle, flags);
  return OpenIpc(Hook::kIpcOpenMemHandle, Original(call), address, handle,
                 flags);
}

FINESERVE_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address,
                                                CUipcMemHandle handle,
                                                unsigned int flags) {
  const auto call =
      CallOf<&EntryPoints::cuIpcOpenMemHandle_v2>(address, handle, flags);
  return OpenIpc(Hook::kIpcOpenMemHandle2, Original(call), address, handle,
                 flags);
}

// This call passes no gate, since opened memory stays on the GPU.
FINESERVE_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  const auto call = CallOf<&EntryPoints::cuIpcCloseMemHandle>(address);
  const Original original(call);
  if (!g_ranges.MayHold(address)) return shim::Pass(original);
  return shim::AskRedirector(
      Hook::kIpcCloseMemHandle, original, [&](const shim::Driver& real) {
        return g_redirector.opened().Close(real, address, original);
      });
}

FINESERVE_EXPORT CUresult cuMemGetHandleForAddressRange(
    void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
    unsigned long long flags) {
  const auto call = CallOf<&EntryPoints::cuMemGetHandleForAddressRange>(
      handle, address, bytes, type, flags);
  return AskAboutAddress(address, Hook::kHandleForRange, Original(call),
                         g_redirector, &Redirector::ShareAddress,
                         Hook::kHandleForRange, address,
                         CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace fineserve::driver
