#ifndef TOOLS_LAB_DEVICE_MACHINE_DEVICE_ATTRIBUTES_H_
#define TOOLS_LAB_DEVICE_MACHINE_DEVICE_ATTRIBUTES_H_

#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/environment_settings.h"

namespace fineserve::emucuda {

// The properties of the emulated GPU.
inline constexpr char kDeviceName[] = "FineServe emulated GPU";
inline constexpr int kMultiprocessors = 108;
inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kMaxThreadsPerMultiprocessor = 2048;
inline constexpr int kMaxBlocksPerMultiprocessor = 32;

// The compute mode's value in CUDA and in NVML.
inline constexpr int kExclusiveProcess = 3;

struct ComputeCapability {
  int major, minor;
};
ComputeCapability CapabilityOf(const Settings& settings);

// Reads a device attribute as cuDeviceGetAttribute reports it. Returns false
// for numbers that CUDA does not define; an attribute that is defined but not
// emulated reads 0. `device` is the device's number in the machine.
bool DeviceAttribute(driver::CUdevice_attribute attribute, int device,
                     const Settings& settings, int* value);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_DEVICE_ATTRIBUTES_H_
