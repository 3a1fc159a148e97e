#ifndef TOOLS_LAB_TORCH_HOST_ARGUMENTS_H_
#define TOOLS_LAB_TORCH_HOST_ARGUMENTS_H_

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace fineserve::host_device {

// CPU tensors on the memory of CUDA tensors. Tensors that share a storage on
// the device also share one here, so that an operator sees how its arguments
// alias. The CPU tensors own nothing: like a kernel's pointers, they are valid
// while the stream's order protects the memory.
class HostTensors {
 public:
  at::Tensor Wrap(const at::Tensor& device);
  // Returns the device's storage that contains a CPU tensor's memory; null if
  // none does. If a CPU operator enlarged a tensor, the tensor has left the
  // device's memory.
  c10::Storage DeviceStorageOf(const at::Tensor& host) const;

 private:
  struct Pair {
    c10::Storage host, device;
  };
  std::unordered_map<const c10::StorageImpl*, Pair> by_device_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> by_host_;
};

// Copies the mark of a Python number's tensor, which does not decide the type
// of a result.
void KeepWrappedNumber(const at::Tensor& from, const at::Tensor& to);

// Returns one call's arguments for another backend, in the order of the schema:
// every tensor passed through `convert`, every CUDA device replaced.
template <typename Convert>
torch::jit::Stack ConvertArguments(c10::ArrayRef<c10::IValue> arguments,
                                   c10::Device device, Convert convert);

// The properties of the arguments that determine how the call can run.
struct ArgumentKinds {
  bool cpu_tensors = false;  // of a dimension or more: may change during the
                             // call
  bool generators = false;
};
ArgumentKinds KindsOf(c10::ArrayRef<c10::IValue> arguments);

// Replaces a generator of the device by one of the host, for one call. As on a
// GPU, its draws depend only on the device's seed and offset, but the numbers
// differ from a GPU's.
at::Generator HostGenerator(const at::Generator& device);

// Advances the offsets of a call's device generators past its draws.
void AdvanceGenerators(c10::ArrayRef<c10::IValue> arguments);

// Implementation.

template <typename Convert>
c10::IValue ConvertArgument(const c10::IValue& value, c10::Device device,
                            Convert& convert) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? c10::IValue(convert(tensor)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(tensor.defined() ? convert(tensor) : tensor);
    }
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      const bool given = tensor.has_value() && tensor->defined();
      tensors.push_back(given ? std::optional(convert(*tensor)) : tensor);
    }
    return tensors;
  }
  if (value.isDevice() && value.toDevice().is_cuda()) return device;
  if (value.isGenerator()) return HostGenerator(value.toGenerator());
  return value;
}

template <typename Convert>
torch::jit::Stack ConvertArguments(c10::ArrayRef<c10::IValue> arguments,
                                   c10::Device device, Convert convert) {
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  for (const c10::IValue& value : arguments) {
    stack.push_back(ConvertArgument(value, device, convert));
  }
  return stack;
}

}  // namespace fineserve::host_device

#endif  // TOOLS_LAB_TORCH_HOST_ARGUMENTS_H_
