#ifndef TOOLS_LAB_DEVICE_KERNEL_KERNEL_TABLE_H_
#define TOOLS_LAB_DEVICE_KERNEL_KERNEL_TABLE_H_

#include <optional>
#include <string>
#include <string_view>

#include "tools/lab/device/kernel/host_kernel.h"

namespace fineserve::emucuda {

// Registers a kernel under a name, for libraries that have not looked the name
// up yet. It takes precedence over known kernels. Thread-safe.
void RegisterHostKernel(std::string name, HostKernel kernel);

// Finds a kernel that the emulated device can run, by its mangled name: a
// registered one, one of FineServe's own or PyTorch's fill
// kernel. Returns nullopt for all others, whose launches are counted
// and skipped.
std::optional<HostKernel> FindHostKernel(std::string_view mangled_name);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_KERNEL_KERNEL_TABLE_H_
