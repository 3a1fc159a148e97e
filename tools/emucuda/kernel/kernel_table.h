#ifndef TOOLS_EMUCUDA_KERNEL_KERNEL_TABLE_H_
#define TOOLS_EMUCUDA_KERNEL_KERNEL_TABLE_H_

#include <optional>
#include <string>
#include <string_view>

#include "tools/emucuda/kernel/host_kernel.h"

namespace fineserve::emucuda {

// Makes `kernel` the kernel of that name, for libraries that were not asked for
// the name yet; it takes precedence over the known ones. Thread-safe.
void RegisterHostKernel(std::string name, HostKernel kernel);

// The kernel of a mangled name that the emulated device can run: one that was
// registered, FineServe's own (own_kernel.h) or PyTorch's fill (fill_kernel.h).
// Nullopt for others: their launches are counted and skipped.
std::optional<HostKernel> FindHostKernel(std::string_view mangled_name);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_KERNEL_KERNEL_TABLE_H_
