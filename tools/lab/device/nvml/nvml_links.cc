// libnvidia-ml.so.1: the location of devices and the links between them, which
// PyTorch reads when it sets up communication. Each GPU has its own bus; there
// is no NVLink and no fabric.

#include <cstdio>

#include "kernels/driver/export.h"
#include "tools/lab/device/nvml/nvml_machine.h"

using namespace fineserve::emucuda;  // NOLINT: C functions have no namespace

using nvmlDevice_t = const Device*;

namespace {

// True if `text` is the bus id of a device, as "0000:01:00.0" or in NVML's form
// "00000000:01:00.0" (domain:bus:device.function). The driver's
// cuDeviceGetPCIBusId numbers the emulated devices in the same way.
bool IsBusIdOf(const char* text, int ordinal) {
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
    return false;
  }
  return domain == 0 && bus == static_cast<unsigned>(ordinal) + 1 &&
         slot == 0 && function == 0;
}

// Returns the result for a feature that the machine lacks: NOT_SUPPORTED if the
// arguments are valid.
nvmlReturn_t Lacks(const void* device, const void* out) {
  return Ask(device, [&](Machine&) {
    return out == nullptr ? NVML_ERROR_INVALID_ARGUMENT
                          : NVML_ERROR_NOT_SUPPORTED;
  });
}

}  // namespace

FINESERVE_EXPORT nvmlReturn_t
nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  return Ask(device, [&](Machine& machine) {
    if (bus_id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < machine.devices().count(); ++i) {
      if (!IsBusIdOf(bus_id, i)) continue;
      *device = &machine.devices()[i];
      return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(
    nvmlDevice_t device, unsigned link, int* type) {
  return Lacks(device, type);
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(
    nvmlDevice_t device, unsigned link, void* pci) {
  return Lacks(device, pci);
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device,
                                                          void* info) {
  return Lacks(device, info);
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device,
                                                     nvmlDevice_t peer,
                                                     int index, int* status) {
  return Lacks(device, status);
}
