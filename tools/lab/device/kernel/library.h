#ifndef TOOLS_LAB_DEVICE_KERNEL_LIBRARY_H_
#define TOOLS_LAB_DEVICE_KERNEL_LIBRARY_H_

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/driver/cuda_kernel_types.h"
#include "tools/lab/device/kernel/host_kernel.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/handle_registry.h"

namespace fineserve::emucuda {

// A kernel of a loaded library. Its handle is a CUkernel and, as CUDA allows, a
// CUfunction too. Thread-safe.
class Kernel {
 public:
  explicit Kernel(std::string name);

  const std::string& name() const { return name_; }
  // Null if the device cannot run the kernel.
  const HostKernel* host() const { return host_ ? &*host_ : nullptr; }

  // Both functions return false if there is no such attribute.
  bool Attribute(driver::CUfunction_attribute attribute, int* value) const;
  bool SetAttribute(driver::CUfunction_attribute attribute, int value);

 private:
  const std::string name_;
  const std::optional<HostKernel> host_;
  // Relaxed: the attributes are independent of each other.
  std::array<std::atomic<int>, driver::CU_FUNC_ATTRIBUTE_MAX> attributes_{};
};

// Loaded code. The image is not interpreted; the library behaves as if it had a
// kernel of every name. Thread-safe.
class Library {
 public:
  ~Library();
  // Returns the kernel of that name: never null, and the same kernel on every
  // call.
  driver::CUkernel FindKernel(const std::string& name);

 private:
  Mutex mutex_;
  std::map<std::string, driver::CUkernel> kernels_ EMUCUDA_GUARDED_BY(mutex_);
};

// All libraries and kernels of the process. Made at first use and never
// destroyed.
HandleRegistry<driver::CUlibrary, Library>& Libraries();
HandleRegistry<driver::CUkernel, Kernel>& Kernels();

// Returns the kernel behind a CUfunction, or null.
std::shared_ptr<Kernel> FindFunction(driver::CUfunction function);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_KERNEL_LIBRARY_H_
