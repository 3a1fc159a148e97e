#ifndef TOOLS_EMUCUDA_KERNEL_OWN_KERNEL_H_
#define TOOLS_EMUCUDA_KERNEL_OWN_KERNEL_H_

#include <optional>
#include <string_view>

#include "tools/emucuda/kernel/host_kernel.h"

namespace fineserve::emucuda {

// Finds one of FineServe's own kernels (kernels/*.cu), which its host twin
// runs. Returns nullopt for any other name.
std::optional<HostKernel> FindOwnKernel(std::string_view name);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_KERNEL_OWN_KERNEL_H_
