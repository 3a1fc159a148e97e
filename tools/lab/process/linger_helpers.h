#ifndef TOOLS_LAB_PROCESS_LINGER_HELPERS_H_
#define TOOLS_LAB_PROCESS_LINGER_HELPERS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace fineserve::process {

// Returns the processes that still do a dead client's work on the emulated
// devices with this state folder (tools/lab/device/linger).
std::vector<pid_t> LingerHelpers(const std::string& device_folder);
// Makes them do it now.
void EndLingering(const std::string& device_folder);

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_LINGER_HELPERS_H_
