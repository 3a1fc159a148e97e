#ifndef TOOLS_EMUCUDA_KERNEL_OWN_KERNEL_H_
#define TOOLS_EMUCUDA_KERNEL_OWN_KERNEL_H_

#include <optional>
#include <string_view>

#include "tools/emucuda/kernel/host_kernel.h"

namespace fineserve::emucuda {

// FineServe's own kernels (kernels/*.cu), run by their host twins: nullopt for
// any other name.
std::optional<HostKernel> FindOwnKernel(std::string_view name);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_KERNEL_OWN_KERNEL_H_
