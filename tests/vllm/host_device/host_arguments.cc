#include "tests/vllm/host_device/host_arguments.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>

#include <map>
#include <mutex>

namespace fineserve::host_device {

void KeepWrappedNumber(const at::Tensor& from, const at::Tensor& to) {
  if (!from.unsafeGetTensorImpl()->is_wrapped_number()) return;
  to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

at::Tensor HostTensors::Wrap(const at::Tensor& device) {
  const c10::Storage& storage = device.storage();
  Pair& pair = by_device_[storage.unsafeGetStorageImpl()];
  if (!pair.host) {
    pair.device = storage;
    // Resizable, so that an operator can enlarge an out= tensor; it then lies
    // in memory of the host, and the caller copies it back.
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

at::Generator HostGenerator(const at::Generator& device) {
  if (!device.defined() || device.device().is_cpu()) return device;
  struct Twin {
    uint64_t seed;
    at::Generator device, host;
  };
  static std::mutex mutex;
  static auto* const twins = new std::map<const c10::GeneratorImpl*, Twin>;
  const std::scoped_lock lock(mutex);
  const uint64_t seed = device.current_seed();
  auto [found, fresh] = twins->try_emplace(device.unsafeGetGeneratorImpl());
  Twin& twin = found->second;
  if (fresh || twin.seed != seed) {
    twin = {seed, device, at::detail::createCPUGenerator(seed)};
  }
  return twin.host;
}

}  // namespace fineserve::host_device
