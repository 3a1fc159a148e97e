#include "tools/lab/device/kernel/library.h"

#include "tools/lab/device/kernel/kernel_table.h"
#include "tools/lab/device/machine/device_attributes.h"

namespace fineserve::emucuda {
namespace {

// The attributes of a typical kernel.
constexpr int kRegisters = 32;
// Code for 8.0 runs on every 8.x.
constexpr int kArchitecture = 80;

}  // namespace

Kernel::Kernel(std::string name)
    : name_(std::move(name)), host_(FindHostKernel(name_)) {
  attributes_[driver::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] =
      kMaxThreadsPerBlock;
  attributes_[driver::CU_FUNC_ATTRIBUTE_NUM_REGS] = kRegisters;
  attributes_[driver::CU_FUNC_ATTRIBUTE_PTX_VERSION] = kArchitecture;
  attributes_[driver::CU_FUNC_ATTRIBUTE_BINARY_VERSION] = kArchitecture;
}

bool Kernel::Attribute(driver::CUfunction_attribute attribute,
                       int* value) const {
  if (attribute >= attributes_.size()) return false;
  *value = attributes_[attribute].load(std::memory_order_relaxed);
  return true;
}

bool Kernel::SetAttribute(driver::CUfunction_attribute attribute, int value) {
  if (attribute >= attributes_.size()) return false;
  attributes_[attribute].store(value, std::memory_order_relaxed);
  return true;
}

Library::~Library() {
  const MutexLock lock(mutex_);
  for (const auto& [name, kernel] : kernels_) Kernels().Remove(kernel);
}

driver::CUkernel Library::FindKernel(const std::string& name) {
  const MutexLock lock(mutex_);
  driver::CUkernel& kernel = kernels_[name];
  if (kernel == nullptr) {
    kernel = Kernels().Add(std::make_shared<Kernel>(name));
  }
  return kernel;
}

HandleRegistry<driver::CUlibrary, Library>& Libraries() {
  static auto& libraries = *new HandleRegistry<driver::CUlibrary, Library>;
  return libraries;
}

HandleRegistry<driver::CUkernel, Kernel>& Kernels() {
  static auto& kernels = *new HandleRegistry<driver::CUkernel, Kernel>;
  return kernels;
}

std::shared_ptr<Kernel> FindFunction(driver::CUfunction function) {
  return Kernels().Find(reinterpret_cast<driver::CUkernel>(function));
}

}  // namespace fineserve::emucuda
