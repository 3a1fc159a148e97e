// Exported functions: fills.

#include <utility>

#include "tools/emucuda/api/call_frame.h"
#include "tools/emucuda/api/exported_prototypes.h"
#include "tools/emucuda/api/submit_work.h"

namespace fineserve::driver {

using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Driver;
using emucuda::Entry;
using emucuda::Pattern;
using emucuda::Place;
using emucuda::PlaceOf;
using emucuda::Reachable;
using emucuda::SubmitTo;
using emucuda::Wait;

namespace {

// `rows` rows of `count` patterns, `pitch` bytes apart. Never waits: CUDA
// leaves open whether the synchronous fills do, and not waiting finds more
// bugs.
CUresult FillRows(Context& context, CUdeviceptr to, size_t pitch,
                  Pattern pattern, size_t count, size_t rows, CUstream stream) {
  uint64_t width;
  if (to % pattern.width != 0 || pitch % pattern.width != 0 ||
      __builtin_mul_overflow(count, pattern.width, &width) ||
      (rows > 1 && pitch < width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (count == 0 || rows == 0) return CUDA_SUCCESS;
  if (!Reachable(to)) return CUDA_ERROR_INVALID_VALUE;
  const auto& space = Driver::Get().space();
  auto lingering = rows == 1 && !emucuda::IsCapturing(context, stream)
                       ? Driver::Get().linger().QueueFill(
                             space, context.device(), to, pattern, width)
                       : nullptr;
  return SubmitTo(
      context, stream, Wait::kNo,
      [lingering = std::move(lingering), &space, device = context.device(),
       start = PlaceOf(to), pitch, pattern, width, rows] {
        Place row = start;
        CUresult result = CUDA_SUCCESS;
        for (size_t y = 0; y < rows && result == CUDA_SUCCESS; ++y) {
          result = emucuda::FillPlace(space, device, row, pattern, width);
          row.address += pitch;
        }
        return result;
      });
}

CUresult Fill(Context& context, CUdeviceptr to, Pattern pattern, size_t count,
              CUstream stream) {
  return FillRows(context, to, 0, pattern, count, 1, stream);
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return CallInContext(
      Entry::cuMemsetD8_v2,
      [&](Context& context) {
        return Fill(context, to, {value, 1}, count, nullptr);
      },
      to, value, count);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                         CUstream stream) {
  return CallInContext(
      Entry::cuMemsetD8Async,
      [&](Context& context) {
        return Fill(context, to, {value, 1}, count, stream);
      },
      to, value, count, stream);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value,
                         size_t width, size_t rows) {
  return CallInContext(
      Entry::cuMemsetD2D8_v2,
      [&](Context& context) {
        return FillRows(context, to, pitch, {value, 1}, width, rows, nullptr);
      },
      to, pitch, value, width, rows);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value,
                           size_t width, size_t rows, CUstream stream) {
  return CallInContext(
      Entry::cuMemsetD2D8Async,
      [&](Context& context) {
        return FillRows(context, to, pitch, {value, 1}, width, rows, stream);
      },
      to, pitch, value, width, rows, stream);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return CallInContext(
      Entry::cuMemsetD16_v2,
      [&](Context& context) {
        return Fill(context, to, {value, 2}, count, nullptr);
      },
      to, value, count);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
                          CUstream stream) {
  return CallInContext(
      Entry::cuMemsetD16Async,
      [&](Context& context) {
        return Fill(context, to, {value, 2}, count, stream);
      },
      to, value, count, stream);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value,
                          size_t width, size_t rows) {
  return CallInContext(
      Entry::cuMemsetD2D16_v2,
      [&](Context& context) {
        return FillRows(context, to, pitch, {value, 2}, width, rows, nullptr);
      },
      to, pitch, value, width, rows);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value,
                            size_t width, size_t rows, CUstream stream) {
  return CallInContext(
      Entry::cuMemsetD2D16Async,
      [&](Context& context) {
        return FillRows(context, to, pitch, {value, 2}, width, rows, stream);
      },
      to, pitch, value, width, rows, stream);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return CallInContext(
      Entry::cuMemsetD32_v2,
      [&](Context& context) {
        return Fill(context, to, {value, 4}, count, nullptr);
      },
      to, value, count);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count,
                          CUstream stream) {
  return CallInContext(
      Entry::cuMemsetD32Async,
      [&](Context& context) {
        return Fill(context, to, {value, 4}, count, stream);
      },
      to, value, count, stream);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value,
                          size_t width, size_t rows) {
  return CallInContext(
      Entry::cuMemsetD2D32_v2,
      [&](Context& context) {
        return FillRows(context, to, pitch, {value, 4}, width, rows, nullptr);
      },
      to, pitch, value, width, rows);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value,
                            size_t width, size_t rows, CUstream stream) {
  return CallInContext(
      Entry::cuMemsetD2D32Async,
      [&](Context& context) {
        return FillRows(context, to, pitch, {value, 4}, width, rows, stream);
      },
      to, pitch, value, width, rows, stream);
}

}  // namespace fineserve::driver
