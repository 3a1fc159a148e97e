#include "tools/lab/torch/result_shapes.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <exception>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "tools/lab/torch/host_arguments.h"

namespace fineserve::host_device {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using Shapes = std::optional<std::vector<ResultShape>>;

// All that results can depend on, except data, as bytes.
class Key {
 public:
  Key(const c10::OperatorHandle& op, Arguments arguments) {
    Append(&op.schema());
    for (const c10::IValue& value : arguments) Append(value);
  }
  // True if this class knows the kinds of all arguments.
  bool complete() const { return complete_; }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename T>
  void AppendBytes(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Append(const c10::FunctionSchema* schema) { AppendBytes(schema); }
  void Append(c10::IntArrayRef values) {
    AppendBytes(values.size());
    for (const int64_t value : values) AppendBytes(value);
  }
  void Append(const at::Tensor& tensor) {
    AppendBytes(tensor.defined());
    if (!tensor.defined()) return;
    AppendBytes(tensor.scalar_type());
    AppendBytes(tensor.is_cuda());
    AppendBytes(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    Append(tensor.sizes());
    Append(tensor.strides());
  }
  void Append(const c10::IValue& value);

  std::string bytes_;
  bool complete_ = true;
};

void Key::Append(const c10::IValue& value) {
  bytes_.push_back(value.isTensor()               ? 't'
                   : value.isTensorList()         ? 'l'
                   : value.isOptionalTensorList() ? 'o'
                   : value.isNone()               ? 'n'
                   : value.isInt()                ? 'i'
                   : value.isDouble()             ? 'd'
                   : value.isBool()               ? 'b'
                   : value.isDevice()             ? 'v'
                   : value.isIntList()            ? 'I'
                                                  : '?');
  switch (bytes_.back()) {
    case 't':
      return Append(value.toTensor());
    case 'l':
      for (const at::Tensor& tensor : value.toTensorVector()) Append(tensor);
      return bytes_.push_back('.');
    case 'o':
      for (const auto& tensor : value.toOptionalTensorVector()) {
        Append(tensor.value_or(at::Tensor()));
      }
      return bytes_.push_back('.');
    case 'i':
      return AppendBytes(value.toInt());
    case 'd':
      return AppendBytes(value.toDouble());
    case 'b':
      return AppendBytes(value.toBool());
    case 'v':
      return AppendBytes(value.toDevice());
    case 'I':
      return Append(c10::IntArrayRef(value.toIntVector()));
    case '?':
      complete_ = false;
  }
}

at::Tensor MetaTensor(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           tensor.options().device(at::kMeta));
}

ResultShape ShapeOf(const c10::IValue& value) {
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.defined()) return {};
  return {.defined = true,
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .type = tensor.scalar_type()};
}

bool IsAmong(const torch::jit::Stack& results, const at::Tensor& tensor) {
  for (const c10::IValue& value : results) {
    if (value.isTensor() && value.toTensor().is_same(tensor)) return true;
  }
  return false;
}

Shapes AskMetaKernel(const c10::OperatorHandle& op, Arguments arguments) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return {};
  std::vector<std::pair<at::Tensor, at::Tensor>> metas;
  torch::jit::Stack stack = ConvertArguments(
      arguments, at::Device(at::kMeta), [&](const at::Tensor& tensor) {
        if (!tensor.is_cuda()) return tensor;  // a scalar
        metas.emplace_back(tensor, MetaTensor(tensor));
        return metas.back().second;
      });
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const std::exception&) {
    return {};  // it depends on data
  }
  for (const auto& [tensor, meta] : metas) {
    if (tensor.sizes() != meta.sizes() && !IsAmong(stack, meta)) return {};
  }
  std::vector<ResultShape> shapes;
  for (const c10::IValue& value : stack) shapes.push_back(ShapeOf(value));
  return shapes;
}

}  // namespace

Shapes ShapesOfResults(const c10::OperatorHandle& op, Arguments arguments) {
  static std::mutex mutex;
  static auto* const known = new std::unordered_map<std::string, Shapes>;
  const Key key(op, arguments);
  if (!key.complete()) return AskMetaKernel(op, arguments);
  {
    const std::scoped_lock lock(mutex);
    const auto found = known->find(key.bytes());
    if (found != known->end()) return found->second;
  }
  Shapes shapes = AskMetaKernel(op, arguments);
  const std::scoped_lock lock(mutex);
  return known->emplace(key.bytes(), std::move(shapes)).first->second;
}

}  // namespace fineserve::host_device
