// Exported functions: copies and fills.

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tools/emucuda/call.h"
#include "tools/emucuda/device_work.h"
#include "tools/emucuda/driver.h"
#include "tools/emucuda/prototypes.h"
#include "tools/emucuda/stream_handle.h"

namespace fineserve::driver {

using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Driver;
using emucuda::Entry;
using emucuda::Pattern;
using emucuda::Stream;

namespace {

// Pageable sources up to this are staged at the call, as a real driver does.
constexpr size_t kStagedBytes = 64 << 10;

enum class Wait { kNo, kYes };

using Work = std::function<CUresult()>;

bool IsDevice(CUdeviceptr address) {
  return Driver::Get().space().Contains(address);
}

bool IsPinned(const void* host, size_t bytes) {
  return Driver::Get().pinned().Contains(host, bytes);
}

CUresult Submit(Context& context, CUstream handle, Wait wait, Work work) {
  const std::shared_ptr<Stream> stream = emucuda::FindStream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context& owner = stream->context();
  return wait == Wait::kYes ? owner.RunWork(*stream, std::move(work))
                            : owner.SubmitWork(*stream, std::move(work));
}

CUresult CopyIn(Context& context, CUdeviceptr to, const void* from,
                size_t bytes, CUstream stream, Wait wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (from == nullptr || !IsDevice(to)) return CUDA_ERROR_INVALID_VALUE;
  const auto& space = Driver::Get().space();
  const int device = context.device();
  if (wait == Wait::kNo && !IsPinned(from, bytes)) {
    if (bytes <= kStagedBytes) {
      const char* start = static_cast<const char*>(from);
      std::vector<char> staged(start, start + bytes);
      return Submit(context, stream, Wait::kNo,
                    [&space, device, to, staged = std::move(staged)] {
                      return emucuda::CopyIn(space, device, to, staged.data(),
                                             staged.size());
                    });
    }
    wait = Wait::kYes;
  }
  return Submit(context, stream, wait, [&space, device, to, from, bytes] {
    return emucuda::CopyIn(space, device, to, from, bytes);
  });
}

// A copy to pageable memory is complete when the call returns, as CUDA
// documents.
CUresult CopyOut(Context& context, void* to, CUdeviceptr from, size_t bytes,
                 CUstream stream, Wait wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (to == nullptr || !IsDevice(from)) return CUDA_ERROR_INVALID_VALUE;
  if (!IsPinned(to, bytes)) wait = Wait::kYes;
  const auto& space = Driver::Get().space();
  const int device = context.device();
  return Submit(context, stream, wait, [&space, device, to, from, bytes] {
    return emucuda::CopyOut(space, device, to, from, bytes);
  });
}

CUresult CopyWithin(Context& context, CUdeviceptr to, CUdeviceptr from,
                    size_t bytes, CUstream stream, Wait wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (!IsDevice(to) || !IsDevice(from)) return CUDA_ERROR_INVALID_VALUE;
  const auto& space = Driver::Get().space();
  const int device = context.device();
  return Submit(context, stream, wait, [&space, device, to, from, bytes] {
    return emucuda::CopyWithin(space, device, to, from, bytes);
  });
}

// Unified addressing: the addresses say what is host and what is device.
CUresult CopyAny(Context& context, CUdeviceptr to, CUdeviceptr from,
                 size_t bytes, CUstream stream, Wait wait) {
  void* const host_to = reinterpret_cast<void*>(to);
  const void* const host_from = reinterpret_cast<const void*>(from);
  if (IsDevice(to) && IsDevice(from)) {
    return CopyWithin(context, to, from, bytes, stream, wait);
  }
  if (IsDevice(to)) return CopyIn(context, to, host_from, bytes, stream, wait);
  if (IsDevice(from)) {
    return CopyOut(context, host_to, from, bytes, stream, wait);
  }
  if (bytes == 0) return CUDA_SUCCESS;
  if (to == 0 || from == 0) return CUDA_ERROR_INVALID_VALUE;
  return Submit(context, stream, Wait::kYes, [host_to, host_from, bytes] {
    memmove(host_to, host_from, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult Fill(Context& context, CUdeviceptr to, Pattern pattern, size_t count,
              CUstream stream, Wait wait) {
  uint64_t bytes;
  if (to % pattern.width != 0 ||
      __builtin_mul_overflow(count, pattern.width, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (count == 0) return CUDA_SUCCESS;
  if (!IsDevice(to)) return CUDA_ERROR_INVALID_VALUE;
  const auto& space = Driver::Get().space();
  const int device = context.device();
  return Submit(context, stream, wait, [&space, device, to, pattern, bytes] {
    return emucuda::Fill(space, device, to, pattern, bytes);
  });
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CallInContext(
      Entry::cuMemcpy,
      [&](Context& context) {
        return CopyAny(context, to, from, bytes, nullptr, Wait::kYes);
      },
      to, from, bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       CUstream stream) {
  return CallInContext(
      Entry::cuMemcpyAsync,
      [&](Context& context) {
        return CopyAny(context, to, from, bytes, stream, Wait::kNo);
      },
      to, from, bytes, stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return CallInContext(
      Entry::cuMemcpyHtoD_v2,
      [&](Context& context) {
        return CopyIn(context, to, from, bytes, nullptr, Wait::kYes);
      },
      to, from, bytes);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return CallInContext(
      Entry::cuMemcpyDtoH_v2,
      [&](Context& context) {
        return CopyOut(context, to, from, bytes, nullptr, Wait::kYes);
      },
      to, from, bytes);
}

// Asynchronous to the host, as CUDA documents for copies within a device.
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CallInContext(
      Entry::cuMemcpyDtoD_v2,
      [&](Context& context) {
        return CopyWithin(context, to, from, bytes, nullptr, Wait::kNo);
      },
      to, from, bytes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                              CUstream stream) {
  return CallInContext(
      Entry::cuMemcpyHtoDAsync_v2,
      [&](Context& context) {
        return CopyIn(context, to, from, bytes, stream, Wait::kNo);
      },
      to, from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  return CallInContext(
      Entry::cuMemcpyDtoHAsync_v2,
      [&](Context& context) {
        return CopyOut(context, to, from, bytes, stream, Wait::kNo);
      },
      to, from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  return CallInContext(
      Entry::cuMemcpyDtoDAsync_v2,
      [&](Context& context) {
        return CopyWithin(context, to, from, bytes, stream, Wait::kNo);
      },
      to, from, bytes, stream);
}

// CUDA leaves open whether these wait; not waiting finds more bugs.
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return CallInContext(
      Entry::cuMemsetD8_v2,
      [&](Context& context) {
        return Fill(context, to, {value, 1}, count, nullptr, Wait::kNo);
      },
      to, value, count);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return CallInContext(
      Entry::cuMemsetD32_v2,
      [&](Context& context) {
        return Fill(context, to, {value, 4}, count, nullptr, Wait::kNo);
      },
      to, value, count);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                         CUstream stream) {
  return CallInContext(
      Entry::cuMemsetD8Async,
      [&](Context& context) {
        return Fill(context, to, {value, 1}, count, stream, Wait::kNo);
      },
      to, value, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count,
                          CUstream stream) {
  return CallInContext(
      Entry::cuMemsetD32Async,
      [&](Context& context) {
        return Fill(context, to, {value, 4}, count, stream, Wait::kNo);
      },
      to, value, count, stream);
}

}  // namespace fineserve::driver
