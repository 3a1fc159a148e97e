#ifndef TOOLS_EMUCUDA_API_DEVICE_ATTRIBUTES_H_
#define TOOLS_EMUCUDA_API_DEVICE_ATTRIBUTES_H_

#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/machine/environment_settings.h"

namespace fineserve::emucuda {

// cuDeviceGetAttribute. False for numbers that CUDA does not define; what it
// defines and we do not model reads 0. `device` is its number in the machine.
bool DeviceAttribute(driver::CUdevice_attribute attribute, int device,
                     const Settings& settings, int* value);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_DEVICE_ATTRIBUTES_H_
