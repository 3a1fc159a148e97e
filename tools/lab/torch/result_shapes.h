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

// Returns the shapes of an operator's results on the device, as the operator's
// kernel for the meta device reports them; an out= argument may have to be
// resized to its shape. Returns nothing if the shapes depend on data. All
// results of the schema must be tensors. Results are cached, because many meta
// kernels are Python. Thread-safe.
std::optional<std::vector<ResultShape>> ShapesOfResults(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace fineserve::host_device

#endif  // TOOLS_LAB_TORCH_RESULT_SHAPES_H_
