#ifndef TOOLS_EMUCUDA_KERNEL_HOST_KERNEL_H_
#define TOOLS_EMUCUDA_KERNEL_HOST_KERNEL_H_

// Kernels that the emulated device can run: functions of this process that do
// to device memory what the kernel of that name does. A stock program's other
// kernels are counted and skipped.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/memory/address_space.h"

namespace fineserve::emucuda {

// The values of a launch's arguments, copied when it was submitted.
using KernelArguments = std::vector<std::vector<char>>;

struct HostKernel {
  std::vector<size_t> argument_bytes;  // those that `run` reads, in order
  // Runs the whole grid as `device`; errors as in device_work.h. Any thread.
  std::function<CUresult(const AddressSpace& space, int device,
                         const KernelArguments& arguments)>
      run;
};

// Lets `run` be the kernel of that name, in libraries that do not know the name
// yet; it takes precedence over the known ones. Thread-safe.
void RegisterHostKernel(std::string name, HostKernel kernel);

// The host's version of a kernel, by its mangled name; nullopt if there is
// none. Known: what was registered, FineServe's own (own_kernel.h), and
// PyTorch's fill with one value (torch.zeros, ones, full, fill_).
std::optional<HostKernel> FindHostKernel(std::string_view mangled_name);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_KERNEL_HOST_KERNEL_H_
