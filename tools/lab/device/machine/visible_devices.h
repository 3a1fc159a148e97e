#ifndef TOOLS_LAB_DEVICE_MACHINE_VISIBLE_DEVICES_H_
#define TOOLS_LAB_DEVICE_MACHINE_VISIBLE_DEVICES_H_

#include <vector>

#include "tools/lab/device/machine/environment_settings.h"
#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::emucuda {

// Returns the numbers of the machine's devices that CUDA_VISIBLE_DEVICES lets
// this process see, in the order in which the process sees them; all devices if
// the variable is not set. As in CUDA's programming guide, each entry is a
// number or the beginning of a UUID, and an entry that names no device hides
// itself and all entries after it.
std::vector<int> VisibleDevices(const Settings& settings,
                                const StateFolder& folder);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_VISIBLE_DEVICES_H_
