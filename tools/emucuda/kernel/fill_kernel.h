#ifndef TOOLS_EMUCUDA_KERNEL_FILL_KERNEL_H_
#define TOOLS_EMUCUDA_KERNEL_FILL_KERNEL_H_

#include <optional>
#include <string_view>

#include "tools/emucuda/kernel/host_kernel.h"

namespace fineserve::emucuda {

// Finds PyTorch's fill with one value (torch.zeros, ones, full, fill_) by its
// mangled name. Returns nullopt for any other name.
std::optional<HostKernel> FindFillKernel(std::string_view name);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_KERNEL_FILL_KERNEL_H_
