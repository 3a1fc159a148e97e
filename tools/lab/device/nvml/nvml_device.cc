// libnvidia-ml.so.1: properties of devices, which engines and tools read before
// they use the driver.

#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "kernels/driver/export.h"
#include "tools/lab/device/machine/device_attributes.h"
#include "tools/lab/device/nvml/nvml_machine.h"

using namespace fineserve::emucuda;  // NOLINT: C functions have no namespace

using nvmlDevice_t = const Device*;

// As in nvml.h: both bus ids are "domain:bus:device.function", the legacy one
// with a domain of 4 digits, the other one with 8.
struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pciDeviceId;
  unsigned pciSubSystemId;
  char busId[32];
};

// Ignores the flags, which choose what to attach to and make no difference for
// one machine.
FINESERVE_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned /*flags*/) {
  return Machine::Get().Init();
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name,
                                                unsigned capacity) {
  return Ask(device, [&](Machine&) {
    if (name == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (capacity < sizeof(kDeviceName)) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(name, kDeviceName, sizeof(kDeviceName));
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(
    nvmlDevice_t device, int* major, int* minor) {
  return Ask(device, [&](Machine& machine) {
    if (major == nullptr || minor == nullptr) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    const ComputeCapability capability = CapabilityOf(machine.settings());
    *major = capability.major;
    *minor = capability.minor;
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device,
                                                 unsigned* index) {
  return Ask(device, [&](Machine&) {
    if (index == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *index = static_cast<unsigned>(device->number);
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device,
                                                      nvmlPciInfo_t* pci) {
  return Ask(device, [&](Machine&) {
    if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *pci = {};
    pci->bus = static_cast<unsigned>(device->number) + 1;
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0",
             pci->bus);
    snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device,
                                                           int* mode) {
  return Ask(device, [&](Machine& machine) {
    if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *mode = machine.settings().not_persistent ? 0 : 1;
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device,
                                                       int* mode) {
  return Ask(device, [&](Machine& machine) {
    if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *mode = machine.settings().exclusive ? kExclusiveProcess : 0;
    return NVML_SUCCESS;
  });
}

// As nvml.h has it.
struct nvmlConfComputeSystemState_t {
  unsigned environment;
  unsigned ccFeature;
  unsigned devToolsMode;
};

FINESERVE_EXPORT nvmlReturn_t
nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t* state) {
  return Ask(state, [&](Machine& machine) {
    *state = {};
    state->ccFeature = machine.settings().confidential ? 1 : 0;
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(
    nvmlDevice_t device, unsigned kind, unsigned, unsigned long long* count) {
  constexpr unsigned kUncorrected = 1;
  return Ask(device, [&](Machine& machine) {
    if (count == nullptr || kind > kUncorrected) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    const std::string file = machine.settings().folder + "/gpu" +
                             std::to_string(device->number) + ".errors";
    struct stat status;
    const bool any = kind == kUncorrected && stat(file.c_str(), &status) == 0;
    *count = any ? static_cast<unsigned long long>(status.st_size) : 0;
    return NVML_SUCCESS;
  });
}
