// Exported functions: fills.

#include <utility>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/linger/linger.h"

namespace fineserve::driver {

using emucuda::Context;
using emucuda::Entry;
using emucuda::ForwardInContext;
using emucuda::Pattern;
using emucuda::Place;

namespace {

// Fills `rows` rows of `count` patterns, `pitch` bytes apart. Never waits for
// the work: CUDA does not say whether the synchronous fills do, and not waiting
// finds more bugs.
CUresult SubmitRows(Context& context, CUdeviceptr to, size_t pitch,
                    Pattern pattern, size_t count, size_t rows,
                    CUstream stream) {
  uint64_t width;
  if (to % pattern.width != 0 || pitch % pattern.width != 0 ||
      __builtin_mul_overflow(count, pattern.width, &width) ||
      (rows > 1 && pitch < width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (count == 0 || rows == 0) return CUDA_SUCCESS;
  if (!emucuda::Reachable(to)) return CUDA_ERROR_INVALID_VALUE;
  if (emucuda::DriverSettings().lose_fills) rows = 0;
  const auto& space = emucuda::Addresses();
  auto lingering = rows == 1 && !emucuda::IsCapturing(context, stream)
                       ? emucuda::LingeringWork().QueueFill(
                             space, context.device(), to, pattern, width)
                       : nullptr;
  return emucuda::SubmitTo(
      context, stream, emucuda::Wait::kNo,
      [lingering = std::move(lingering), &space, device = context.device(),
       start = emucuda::PlaceOf(to), pitch, pattern, width, rows] {
        Place row = start;
        CUresult result = CUDA_SUCCESS;
        for (size_t y = 0; y < rows && result == CUDA_SUCCESS; ++y) {
          result = emucuda::FillPlace(space, device, row, pattern, width);
          row.address += pitch;
        }
        return result;
      });
}

template <typename Word>
CUresult FillAsync(Context& context, CUdeviceptr to, Word value, size_t count,
                   CUstream stream) {
  return SubmitRows(context, to, 0, {value, sizeof(value)}, count, 1, stream);
}

template <typename Word>
CUresult Fill(Context& context, CUdeviceptr to, Word value, size_t count) {
  return FillAsync(context, to, value, count, nullptr);
}

template <typename Word>
CUresult FillRowsAsync(Context& context, CUdeviceptr to, size_t pitch,
                       Word value, size_t width, size_t rows, CUstream stream) {
  return SubmitRows(context, to, pitch, {value, sizeof(value)}, width, rows,
                    stream);
}

template <typename Word>
CUresult FillRows(Context& context, CUdeviceptr to, size_t pitch, Word value,
                  size_t width, size_t rows) {
  return FillRowsAsync(context, to, pitch, value, width, rows, nullptr);
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return ForwardInContext(Entry::cuMemsetD8_v2, Fill<unsigned char>, to, value,
                          count);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                         CUstream stream) {
  return ForwardInContext(Entry::cuMemsetD8Async, FillAsync<unsigned char>, to,
                          value, count, stream);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value,
                         size_t width, size_t rows) {
  return ForwardInContext(Entry::cuMemsetD2D8_v2, FillRows<unsigned char>, to,
                          pitch, value, width, rows);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value,
                           size_t width, size_t rows, CUstream stream) {
  return ForwardInContext(Entry::cuMemsetD2D8Async,
                          FillRowsAsync<unsigned char>, to, pitch, value, width,
                          rows, stream);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return ForwardInContext(Entry::cuMemsetD16_v2, Fill<unsigned short>, to,
                          value, count);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
                          CUstream stream) {
  return ForwardInContext(Entry::cuMemsetD16Async, FillAsync<unsigned short>,
                          to, value, count, stream);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value,
                          size_t width, size_t rows) {
  return ForwardInContext(Entry::cuMemsetD2D16_v2, FillRows<unsigned short>, to,
                          pitch, value, width, rows);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value,
                            size_t width, size_t rows, CUstream stream) {
  return ForwardInContext(Entry::cuMemsetD2D16Async,
                          FillRowsAsync<unsigned short>, to, pitch, value,
                          width, rows, stream);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return ForwardInContext(Entry::cuMemsetD32_v2, Fill<unsigned int>, to, value,
                          count);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count,
                          CUstream stream) {
  return ForwardInContext(Entry::cuMemsetD32Async, FillAsync<unsigned int>, to,
                          value, count, stream);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value,
                          size_t width, size_t rows) {
  return ForwardInContext(Entry::cuMemsetD2D32_v2, FillRows<unsigned int>, to,
                          pitch, value, width, rows);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value,
                            size_t width, size_t rows, CUstream stream) {
  return ForwardInContext(Entry::cuMemsetD2D32Async,
                          FillRowsAsync<unsigned int>, to, pitch, value, width,
                          rows, stream);
}

}  // namespace fineserve::driver
