#ifndef TOOLS_EMUCUDA_MACHINE_VISIBLE_DEVICES_H_
#define TOOLS_EMUCUDA_MACHINE_VISIBLE_DEVICES_H_

#include <vector>

#include "tools/emucuda/machine/environment_settings.h"
#include "tools/emucuda/machine/state_folder.h"

namespace fineserve::emucuda {

// The numbers of the machine's devices that CUDA_VISIBLE_DEVICES lets this
// process see, in the order in which it sees them: all where it is not set. As
// CUDA's programming guide has it, a word is a number or the beginning of a
// UUID, and one that names no device hides itself and all behind it.
std::vector<int> VisibleDevices(const Settings& settings,
                                const StateFolder& folder);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_MACHINE_VISIBLE_DEVICES_H_
