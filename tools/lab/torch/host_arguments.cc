#include "tools/lab/torch/host_arguments.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>

namespace fineserve::host_device {
namespace {

// How far a draw of at most a few thousand numbers advances a CUDA generator;
// vLLM's first runner subtracts as much after a sample that it drops.
constexpr uint64_t kOffsetStep = 4;

}  // namespace

void KeepWrappedNumber(const at::Tensor& from, const at::Tensor& to) {
  if (!from.unsafeGetTensorImpl()->is_wrapped_number()) return;
  to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

at::Tensor HostTensors::Wrap(const at::Tensor& device) {
  const c10::Storage& storage = device.storage();
  Pair& pair = by_device_[storage.unsafeGetStorageImpl()];
  if (!pair.host) {
    pair.device = storage;
    // Resizable, so that an operator can enlarge an out= tensor; its data is
    // then in host memory, and the caller copies it back.
    pair.host =
        c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                     c10::DataPtr(storage.mutable_data(), at::Device(at::kCPU)),
                     c10::GetCPUAllocator(), /*resizable=*/true);
    by_host_[pair.host.unsafeGetStorageImpl()] = storage;
  }
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(pair.host), c10::DispatchKeySet(c10::DispatchKey::CPU),
      device.dtype());
  c10::TensorImpl* const impl = host.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(device.sizes(), device.strides(),
                              device.storage_offset());
  KeepWrappedNumber(device, host);
  host._set_conj(device.is_conj());
  host._set_neg(device.is_neg());
  return host;
}

c10::Storage HostTensors::DeviceStorageOf(const at::Tensor& host) const {
  const auto found = by_host_.find(host.storage().unsafeGetStorageImpl());
  if (found == by_host_.end()) return {};
  const bool moved = host.storage().data() != found->second.data();
  return moved ? c10::Storage() : found->second;
}

ArgumentKinds KindsOf(c10::ArrayRef<c10::IValue> arguments) {
  ArgumentKinds kinds;
  const auto look = [&](const at::Tensor& tensor) {
    kinds.cpu_tensors |= tensor.is_cpu() && tensor.dim() > 0;
    return tensor;
  };
  ConvertArguments(arguments, at::Device(at::kCPU), look);
  for (const c10::IValue& value : arguments) {
    kinds.generators |= value.isGenerator();
  }
  return kinds;
}

void AdvanceGenerators(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (!value.isGenerator()) continue;
    at::Generator generator = value.toGenerator();
    if (!generator.defined() || generator.device().is_cpu()) continue;
    generator.set_offset(generator.get_offset() + kOffsetStep);
  }
}

at::Generator HostGenerator(const at::Generator& device) {
  if (!device.defined() || device.device().is_cpu()) return device;
  // Mixes with SplitMix64's finalizer, because the host's generator uses only
  // 32 bits of the seed.
  uint64_t mixed =
      device.current_seed() + (device.get_offset() + 1) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return at::detail::createCPUGenerator(mixed ^ (mixed >> 31));
}

}  // namespace fineserve::host_device
