#ifndef TOOLS_EMUCUDA_KERNEL_LIBRARY_H_
#define TOOLS_EMUCUDA_KERNEL_LIBRARY_H_

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/driver/cuda_kernel_types.h"
#include "tools/emucuda/kernel/host_kernel.h"
#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/machine/handle_registry.h"

namespace fineserve::emucuda {

// A kernel of a loaded library. Its handle is a CUkernel and, as CUDA allows, a
// CUfunction too. Thread-safe.
class Kernel {
 public:
  explicit Kernel(std::string name);

  const std::string& name() const { return name_; }
  // Null: the device cannot run it.
  const HostKernel* host() const { return host_ ? &*host_ : nullptr; }

  // False: there is no such attribute.
  bool Attribute(driver::CUfunction_attribute attribute, int* value) const;
  bool SetAttribute(driver::CUfunction_attribute attribute, int value);

 private:
  const std::string name_;
  const std::optional<HostKernel> host_;
  // Relaxed: each stands for itself.
  std::array<std::atomic<int>, driver::CU_FUNC_ATTRIBUTE_MAX> attributes_{};
};

// Loaded code. The image is not interpreted: every name is taken to be in it.
// Thread-safe.
class Library {
 public:
  ~Library();
  // The kernel of that name, always the same; never null.
  driver::CUkernel FindKernel(const std::string& name);

 private:
  Mutex mutex_;
  std::map<std::string, driver::CUkernel> kernels_ EMUCUDA_GUARDED_BY(mutex_);
};

// All that are loaded, whoever loaded them; made at first use, never destroyed.
HandleRegistry<driver::CUlibrary, Library>& Libraries();
HandleRegistry<driver::CUkernel, Kernel>& Kernels();

// The kernel behind a CUfunction; null if there is none.
std::shared_ptr<Kernel> FindFunction(driver::CUfunction function);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_KERNEL_LIBRARY_H_
