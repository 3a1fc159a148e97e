// Exported functions: settings of contexts and devices, which are kept but have
// no effect here; peers; the profiler.

#include <cstdio>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/device_attributes.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/stream/context_table.h"

namespace fineserve::driver {

using emucuda::Call;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Devices;
using emucuda::Entry;
using emucuda::Logged;
using emucuda::Require;

namespace {

constexpr unsigned kApiVersion = 3020;  // that of cuCtxCreate_v2's contexts

struct DefaultLimit {
  CUlimit limit;
  size_t value;
};
constexpr DefaultLimit kDefaultLimits[] = {
    {CU_LIMIT_STACK_SIZE, 1024},
    {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
    {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
    {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0},
};

// Returns null for limits that this device does not have.
const DefaultLimit* FindLimit(CUlimit limit) {
  for (const DefaultLimit& known : kDefaultLimits) {
    if (known.limit == limit) return &known;
  }
  return nullptr;
}

Context* NamedOrCurrent(CUcontext handle) {
  return handle == nullptr ? emucuda::CurrentContext()
                           : emucuda::Contexts().Find(handle);
}

bool BothExist(CUdevice a, CUdevice b) {
  return Devices().Has(a) && Devices().Has(b);
}

CUresult ChangePeer(Context& context, CUcontext peer, bool enabled) {
  const Context* other = emucuda::Contexts().Find(peer);
  if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (other->device() == context.device()) {
    return enabled ? CUDA_ERROR_INVALID_DEVICE
                   : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  }
  if (enabled && emucuda::DriverSettings().lacks_peers) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  if (context.SetPeerAccess(other->device(), enabled)) return CUDA_SUCCESS;
  return enabled ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                 : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* pci_bus_id) {
  return Call(Entry::cuDeviceGetByPCIBusId, Require::kInit, [&] {
    if (device == nullptr || pci_bus_id == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // The format is [domain]:[bus]:[device].[function]; the domain may be left
    // out.
    unsigned domain = 0, bus = 0, slot = 0;
    if (sscanf(pci_bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
        sscanf(pci_bus_id, "%x:%x", &bus, &slot) != 2) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto& devices = Devices();
    for (int i = 0; i < devices.count() && domain == 0 && slot == 0; ++i) {
      if (devices[i].number != static_cast<int>(bus) - 1) continue;
      *device = i;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return Call(Entry::cuDeviceComputeCapability, Require::kInit, Logged(device),
              [&] {
                if (major == nullptr || minor == nullptr) {
                  return CUDA_ERROR_INVALID_VALUE;
                }
                if (const CUresult result = emucuda::CheckDevice(device))
                  return result;
                const auto capability =
                    emucuda::CapabilityOf(emucuda::DriverSettings());
                *major = capability.major;
                *minor = capability.minor;
                return CUDA_SUCCESS;
              });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return Call(
      Entry::cuDeviceCanAccessPeer, Require::kInit, Logged(device, peer), [&] {
        if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!BothExist(device, peer)) return CUDA_ERROR_INVALID_DEVICE;
        *can = device != peer && !emucuda::DriverSettings().lacks_peers ? 1 : 0;
        return CUDA_SUCCESS;
      });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute,
                                 CUdevice from, CUdevice to) {
  return Call(
      Entry::cuDeviceGetP2PAttribute, Require::kInit,
      Logged(attribute, from, to), [&] {
        if (value == nullptr || attribute == 0) return CUDA_ERROR_INVALID_VALUE;
        if (!BothExist(from, to) || from == to) {
          return CUDA_ERROR_INVALID_DEVICE;
        }
        const bool has_it =
            attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
            attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
        *value = has_it && !emucuda::DriverSettings().lacks_peers ? 1 : 0;
        return CUDA_SUCCESS;
      });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return CallInContext(Entry::cuCtxEnablePeerAccess, Logged(peer),
                       [&](Context& context) {
                         if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
                         return ChangePeer(context, peer, true);
                       });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return CallInContext(
      Entry::cuCtxDisablePeerAccess, Logged(peer),
      [&](Context& context) { return ChangePeer(context, peer, false); });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return CallInContext(Entry::cuCtxGetFlags, [&](Context&) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    return CUDA_SUCCESS;
  });
}

// Scheduling flags are accepted and have no effect.
CUresult cuCtxSetFlags(unsigned int flags) {
  return CallInContext(Entry::cuCtxSetFlags, Logged(flags),
                       [](Context&) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return Call(Entry::cuCtxGetId, Require::kInit, Logged(handle), [&] {
    const Context* context = NamedOrCurrent(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = context->id();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return Call(Entry::cuCtxGetApiVersion, Require::kInit, Logged(handle), [&] {
    if (NamedOrCurrent(handle) == nullptr) {
      return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = kApiVersion;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return CallInContext(Entry::cuCtxGetLimit, Logged(limit),
                       [&](Context& context) {
                         const DefaultLimit* known = FindLimit(limit);
                         if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
                         if (known == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
                         const size_t set = context.limit(limit);
                         *value = set != 0 ? set : known->value;
                         return CUDA_SUCCESS;
                       });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return CallInContext(Entry::cuCtxSetLimit, Logged(limit, value),
                       [&](Context& context) {
                         if (FindLimit(limit) == nullptr)
                           return CUDA_ERROR_NOT_SUPPORTED;
                         context.SetLimit(limit, value);
                         return CUDA_SUCCESS;
                       });
}

CUresult cuCtxResetPersistingL2Cache() {
  return CallInContext(Entry::cuCtxResetPersistingL2Cache,
                       [](Context&) { return CUDA_SUCCESS; });
}

// The emulated device has no profiler.
CUresult cuProfilerStart() {
  return CallInContext(Entry::cuProfilerStart,
                       [](Context&) { return CUDA_SUCCESS; });
}

CUresult cuProfilerStop() {
  return CallInContext(Entry::cuProfilerStop,
                       [](Context&) { return CUDA_SUCCESS; });
}

}  // namespace fineserve::driver
