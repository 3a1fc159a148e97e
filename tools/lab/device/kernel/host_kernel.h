#ifndef TOOLS_LAB_DEVICE_KERNEL_HOST_KERNEL_H_
#define TOOLS_LAB_DEVICE_KERNEL_HOST_KERNEL_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/virtual_memory/address_space.h"
#include "tools/lab/device/virtual_memory/device_work.h"

namespace fineserve::emucuda {

// The argument values of a launch, copied when the launch was submitted.
using KernelArguments = std::vector<std::vector<char>>;

// One of the ranges that a kernel fills.
struct KernelFill {
  CUdeviceptr to = 0;
  Pattern pattern;
  uint64_t bytes = 0;
};

// A function of this process that does a kernel's work on device memory.
struct HostKernel {
  std::vector<size_t> argument_bytes;  // of those that `run` reads, in order
  // Runs the whole grid as `device`. Returns the same errors as device_work.h.
  // Any thread may call it.
  std::function<CUresult(const AddressSpace& space, int device,
                         const KernelArguments& arguments)>
      run;
  // Returns the writes of `run` if the kernel only fills; such a launch
  // outlives its client as a fill does (linger.h). Null for other kernels.
  std::vector<KernelFill> (*fills)(const KernelArguments& arguments) = nullptr;
};

template <typename T>
T ArgumentAs(const std::vector<char>& argument) {
  T value;
  memcpy(&value, argument.data(), sizeof(value));
  return value;
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_KERNEL_HOST_KERNEL_H_
