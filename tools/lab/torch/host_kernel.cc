#include "tools/lab/torch/host_kernel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tools/lab/torch/host_arguments.h"
#include "tools/lab/torch/result_shapes.h"

// Declared as in cuda_runtime_api.h, because this library is built without that
// header. PyTorch has loaded the runtime.
extern "C" int cudaLaunchHostFunc(void* stream, void (*function)(void*),
                                  void* user_data);

namespace fineserve::host_device {
namespace {

struct Work {
  const char* name;
  std::function<void()> run;
};

void Run(void* user_data) {
  const std::unique_ptr<Work> work(static_cast<Work*>(user_data));
  try {
    work->run();
  } catch (const std::exception& error) {
    fprintf(stderr, "host_device: %s failed on its stream: %s\n", work->name,
            error.what());
    abort();
  }
}

c10::Stream CurrentStream(const c10::impl::VirtualGuardImpl& cuda) {
  return cuda.getStream(cuda.getDevice());
}

// Runs `run` on PyTorch's current CUDA stream, after everything that was
// submitted before it (cudaLaunchHostFunc). As with a kernel, the caller does
// not wait, and a failure of the work ends the process, because nothing after
// it could be right. The message then contains `name`.
void Enqueue(const char* name, std::function<void()> run) {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  auto work = std::make_unique<Work>(Work{name, std::move(run)});
  const int error = cudaLaunchHostFunc(
      cuda.getStreamNativeHandle(CurrentStream(cuda)), Run, work.get());
  TORCH_CHECK(error == 0, name, ": cudaLaunchHostFunc returned ", error);
  static_cast<void>(work.release());
}

// Waits until everything on PyTorch's current CUDA stream has run.
void SynchronizeCurrentStream() {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  cuda.synchronizeStream(CurrentStream(cuda));
}

using Arguments = c10::ArrayRef<c10::IValue>;
using torch::jit::Stack;

std::atomic<int64_t> enqueued{0};

std::mutex waited_mutex;
std::map<std::string, int64_t>& Waited() {
  static auto* const waited = new std::map<std::string, int64_t>;
  return *waited;
}

void CountWaiting(const c10::OperatorHandle& op) {
  const std::scoped_lock lock(waited_mutex);
  ++Waited()[toString(op.operator_name())];
}

void RunOnHost(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

// Returns the position of the argument that is also this result, if the schema
// says so.
std::optional<size_t> ArgumentOfResult(const c10::FunctionSchema& schema,
                                       const c10::Argument& result) {
  if (result.alias_info() == nullptr) return std::nullopt;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* const alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && *alias == *result.alias_info()) return i;
  }
  return std::nullopt;
}

bool HasOutArguments(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.is_out()) return true;
  }
  return false;
}

bool AllResultsAreTensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) return false;
  }
  return true;
}

bool AllResultsAreArguments(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (!ArgumentOfResult(schema, result)) return false;
  }
  return true;
}

at::Tensor NewDeviceTensor(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                           at::ScalarType type) {
  return at::empty_strided(sizes, strides,
                           at::TensorOptions().dtype(type).device(at::kCUDA));
}

bool MustWait(const c10::OperatorHandle& op, Arguments arguments) {
  static const bool synchronous = getenv("HOST_DEVICE_SYNCHRONOUS") != nullptr;
  if (synchronous || op.hasTag(at::Tag::data_dependent_output) ||
      // The host's generators must be drawn from in the order of the program.
      op.hasTag(at::Tag::nondeterministic_seeded) ||
      !AllResultsAreTensors(op.schema())) {
    return true;
  }
  const ArgumentKinds kinds = KindsOf(arguments);
  return kinds.cpu_tensors || kinds.generators;
}

void ResizeOutArguments(const c10::FunctionSchema& schema, Arguments arguments,
                        const std::vector<ResultShape>& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto argument = ArgumentOfResult(schema, schema.returns()[i]);
    if (!argument) continue;
    const at::Tensor& tensor = arguments[*argument].toTensor();
    if (tensor.sizes() != shapes[i].sizes) tensor.resize_(shapes[i].sizes);
  }
}

// A call whose results have a known shape before it runs.
class EnqueuedCall {
 public:
  // Returns null if the shapes of the results are not known.
  static std::unique_ptr<EnqueuedCall> Prepare(const c10::OperatorHandle& op,
                                               Arguments arguments) {
    if (MustWait(op, arguments)) return {};
    const c10::FunctionSchema& schema = op.schema();
    std::optional<std::vector<ResultShape>> shapes;
    if (HasOutArguments(schema) || !AllResultsAreArguments(schema)) {
      shapes = ShapesOfResults(op, arguments);
      if (!shapes) return {};
      ResizeOutArguments(schema, arguments, *shapes);
    }
    return std::unique_ptr<EnqueuedCall>(
        new EnqueuedCall(op, arguments, shapes));
  }

  // Enqueues the call and returns its results on the device.
  static Stack Launch(std::unique_ptr<EnqueuedCall> call) {
    Stack results = std::move(call->results_);
    const char* const name = call->op_.schema().name().c_str();
    Enqueue(name,
            [shared = std::shared_ptr(std::move(call))] { shared->Run(); });
    return results;
  }

 private:
  EnqueuedCall(const c10::OperatorHandle& op, Arguments arguments,
               const std::optional<std::vector<ResultShape>>& shapes)
      : op_(op),
        stack_(ConvertArguments(
            arguments, at::Device(at::kCPU), [&](const at::Tensor& tensor) {
              return tensor.is_cuda() ? host_.Wrap(tensor) : tensor.clone();
            })) {
    const c10::FunctionSchema& schema = op.schema();
    for (size_t i = 0; i < schema.returns().size(); ++i) {
      const auto argument = ArgumentOfResult(schema, schema.returns()[i]);
      targets_.emplace_back();
      if (argument) {
        results_.push_back(arguments[*argument]);
      } else if (const ResultShape& shape = (*shapes)[i]; shape.defined) {
        const at::Tensor result =
            NewDeviceTensor(shape.sizes, shape.strides, shape.type);
        targets_.back() = host_.Wrap(result);
        results_.push_back(result);
      } else {
        results_.push_back(at::Tensor());
      }
    }
    host_ = {};  // the device's storages must not be kept
  }

  void Run() {
    RunOnHost(op_, &stack_);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (!targets_[i].defined()) continue;
      const at::Tensor& result = stack_[i].toTensor();
      TORCH_CHECK(result.sizes() == targets_[i].sizes(),
                  "its result has shape ", result.sizes(), " instead of ",
                  targets_[i].sizes());
      targets_[i].copy_(result);
    }
  }

  const c10::OperatorHandle op_;
  HostTensors host_;
  Stack stack_;
  std::vector<at::Tensor> targets_;  // on the device's memory, or undefined
  Stack results_;                    // of the device
};

// A call that has waited for the stream.
class WaitingCall {
 public:
  WaitingCall(const c10::OperatorHandle& op, Arguments arguments) {
    stack_ = ConvertArguments(arguments, at::Device(at::kCPU),
                              [&](const at::Tensor& tensor) {
                                if (!tensor.is_cuda()) return tensor;
                                pairs_.push_back({tensor, host_.Wrap(tensor)});
                                return pairs_.back().host;
                              });
    SynchronizeCurrentStream();
    RunOnHost(op, &stack_);
    AdvanceGenerators(arguments);
    for (const Pair& pair : pairs_) WriteBackIfResized(pair);
  }

  Stack Results() {
    Stack results;
    auto to_device = [&](const at::Tensor& host) { return ToDevice(host); };
    for (const c10::IValue& value : stack_) {
      results.push_back(
          ConvertArgument(value, at::Device(at::kCPU), to_device));
    }
    return results;
  }

 private:
  struct Pair {
    at::Tensor device, host;
  };

  void WriteBackIfResized(const Pair& pair) {
    if (pair.host.sizes() == pair.device.sizes() &&
        host_.DeviceStorageOf(pair.host)) {
      return;
    }
    pair.device.resize_(pair.host.sizes());
    HostTensors().Wrap(pair.device).copy_(pair.host);
  }

  at::Tensor ToDevice(const at::Tensor& host) {
    for (const Pair& pair : pairs_) {
      if (pair.host.is_same(host)) return pair.device;
    }
    if (c10::Storage storage = host_.DeviceStorageOf(host)) {
      at::Tensor view = at::empty({0}, host.options().device(at::kCUDA));
      view.set_(std::move(storage), host.storage_offset(), host.sizes(),
                host.strides());
      return view;
    }
    at::Tensor copy =
        NewDeviceTensor(host.sizes(), host.strides(), host.scalar_type());
    HostTensors().Wrap(copy).copy_(host);
    return copy;
  }

  HostTensors host_;
  std::vector<Pair> pairs_;
  Stack stack_;
};

}  // namespace

void HostKernel::operator()(const c10::OperatorHandle& op,
                            c10::DispatchKeySet keys, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const Arguments arguments = torch::jit::last(*stack, count);
  if (is_devices_ != nullptr && is_devices_(arguments)) {
    cuda_->callBoxed(op, keys, stack);
    return;
  }
  Stack results;
  if (auto call = EnqueuedCall::Prepare(op, arguments)) {
    enqueued.fetch_add(1, std::memory_order_relaxed);
    results = EnqueuedCall::Launch(std::move(call));
  } else {
    CountWaiting(op);
    results = WaitingCall(op, arguments).Results();
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

OperatorCounts Counts() {
  const std::scoped_lock lock(waited_mutex);
  return {enqueued.load(std::memory_order_relaxed), Waited()};
}
}  // namespace fineserve::host_device
