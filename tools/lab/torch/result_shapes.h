#ifndef TOOLS_LAB_TORCH_RESULT_SHAPES_H_
#define TOOLS_LAB_TORCH_RESULT_SHAPES_H_

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace fineserve::host_device {

struct ResultShape {
  bool defined;
  std::vector<int64_t> sizes, strides;
  at::ScalarType type;
};

// Shapes of an operator's results on the device, as its kernel for the meta
// device gives them; an out= argument may have to be resized to its shape.
// Nothing if that depends on data. The results of the schema must all be
// tensors. Thread-safe; answers are kept, because many meta kernels are Python.
std::optional<std::vector<ResultShape>> ShapesOfResults(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace fineserve::host_device

#endif  // TOOLS_LAB_TORCH_RESULT_SHAPES_H_
