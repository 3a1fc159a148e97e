#ifndef TOOLS_LAB_TORCH_HOST_KERNEL_H_
#define TOOLS_LAB_TORCH_HOST_KERNEL_H_

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fineserve::host_device {

// Runs an operator's CPU kernel on the memory of its CUDA tensors. If the
// shapes of the results are known beforehand, the call is enqueued on the
// current stream and takes its turn there, as a kernel does. Otherwise it waits
// for the stream, as operators with such results do on a GPU, too.
class HostKernel : public c10::OperatorKernel {
 public:
  // True if a call is the device's own work (an allocation, a plain copy),
  // which the operator's CUDA kernel does.
  using IsDevices = bool (*)(c10::ArrayRef<c10::IValue> arguments);

  HostKernel() = default;
  HostKernel(IsDevices is_devices, c10::SafeKernelFunction cuda)
      : is_devices_(is_devices), cuda_(std::move(cuda)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  IsDevices is_devices_ = nullptr;
  std::optional<c10::SafeKernelFunction> cuda_;
};

// How many operators of this process were enqueued, and how many waited for the
// stream, by name.
struct OperatorCounts {
  int64_t enqueued;
  std::map<std::string, int64_t> waited;
};
OperatorCounts Counts();

}  // namespace fineserve::host_device

#endif  // TOOLS_LAB_TORCH_HOST_KERNEL_H_
