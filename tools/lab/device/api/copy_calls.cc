// Exported functions: linear copies.

#include <utility>
#include <vector>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/linger/linger.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/stream/context_table.h"

namespace fineserve::driver {

using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Entry;
using emucuda::ForwardInContext;
using emucuda::IsDevice;
using emucuda::IsPinned;
using emucuda::Logged;
using emucuda::Place;
using emucuda::PlaceOf;
using emucuda::Reachable;
using emucuda::SubmitTo;
using emucuda::Wait;

namespace {

using emucuda::HostLink;

// Copies; a copy between host and device takes as long as the link of the
// copying device needs, whichever device the memory is on.
CUresult CopyByLink(const emucuda::AddressSpace& space, int device, Place to,
                    Place from, size_t bytes) {
  HostLink* const link = to.on_device == from.on_device
                             ? nullptr
                             : emucuda::Devices()[device].link.get();
  if (link == nullptr) return emucuda::Copy(space, device, to, from, bytes);
  const uint64_t end_ns = link->Book(
      to.on_device ? HostLink::Way::kToDevice : HostLink::Way::kToHost, bytes);
  const CUresult result = emucuda::Copy(space, device, to, from, bytes);
  HostLink::WaitUntil(end_ns);
  return result;
}

// Pageable sources of up to this many bytes are staged during the call, as with
// a real driver.
constexpr size_t kStagedBytes = 64 << 10;

CUdeviceptr Address(const void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

// Copies from a small pageable source, which the caller may overwrite as soon
// as the call returns.
CUresult CopyStaged(Context& context, CUdeviceptr to, CUdeviceptr from,
                    size_t bytes, CUstream stream) {
  const char* start = reinterpret_cast<const char*>(from);
  const auto& space = emucuda::Addresses();
  return SubmitTo(context, stream, Wait::kNo,
                  [&space, device = context.device(), to,
                   staged = std::vector<char>(start, start + bytes)] {
                    return emucuda::CopyIn(space, device, to, staged.data(),
                                           staged.size());
                  });
}

// Copies between any two addresses: with unified addressing, an address shows
// whether it is host or device memory. As CUDA documents, a copy from or to
// pageable memory is complete when the call returns, unless it is small and
// staged.
CUresult CopyAny(Context& context, CUdeviceptr to, CUdeviceptr from,
                 size_t bytes, CUstream stream, Wait wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (to == 0 || from == 0) return CUDA_ERROR_INVALID_VALUE;
  const Place target = PlaceOf(to);
  const Place source = PlaceOf(from);
  const bool pageable_source = !source.on_device && !IsPinned(from, bytes);
  const bool pageable_target = !target.on_device && !IsPinned(to, bytes);
  if (wait == Wait::kNo && pageable_source && target.on_device &&
      bytes <= kStagedBytes) {
    return CopyStaged(context, to, from, bytes, stream);
  }
  if (pageable_source || pageable_target) wait = Wait::kYes;
  const auto& space = emucuda::Addresses();
  auto lingering = target.on_device && source.on_device &&
                           !emucuda::IsCapturing(context, stream)
                       ? emucuda::LingeringWork().QueueCopy(
                             space, context.device(), to, from, bytes)
                       : nullptr;
  return SubmitTo(context, stream, wait,
                  [lingering = std::move(lingering), &space,
                   device = context.device(), target, source, bytes] {
                    return CopyByLink(space, device, target, source, bytes);
                  });
}

CUresult CopyIn(Context& context, CUdeviceptr to, const void* from,
                size_t bytes, CUstream stream, Wait wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (!Reachable(to)) return CUDA_ERROR_INVALID_VALUE;
  return CopyAny(context, to, Address(from), bytes, stream, wait);
}

CUresult CopyOut(Context& context, void* to, CUdeviceptr from, size_t bytes,
                 CUstream stream, Wait wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (!Reachable(from)) return CUDA_ERROR_INVALID_VALUE;
  return CopyAny(context, Address(to), from, bytes, stream, wait);
}

CUresult CopyWithin(Context& context, CUdeviceptr to, CUdeviceptr from,
                    size_t bytes, CUstream stream) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (!Reachable(to) || !Reachable(from)) return CUDA_ERROR_INVALID_VALUE;
  return CopyAny(context, to, from, bytes, stream, Wait::kNo);
}

CUresult CopyPeer(Context& context, CUdeviceptr to, CUcontext to_context,
                  CUdeviceptr from, CUcontext from_context, size_t bytes,
                  CUstream stream) {
  const auto& contexts = emucuda::Contexts();
  if (contexts.Find(to_context) == nullptr ||
      contexts.Find(from_context) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return CopyWithin(context, to, from, bytes, stream);
}

// Submits the copies of a batch in the order of the list; CUDA allows any
// order. `failed`, if given, receives the index of the copy that could not be
// submitted.
CUresult CopyBatch(Context& context, const CUdeviceptr* to,
                   const CUdeviceptr* from, const size_t* bytes, size_t count,
                   const CUmemcpyAttributes* attributes,
                   const size_t* attribute_starts, size_t attribute_count,
                   size_t* failed, CUstream stream) {
  if (failed != nullptr) *failed = SIZE_MAX;
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0 ||
      attributes == nullptr || attribute_starts == nullptr ||
      attribute_count == 0 || attribute_count > count ||
      attribute_starts[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result =
        CopyAny(context, to[i], from[i], bytes[i], stream, Wait::kNo);
    if (result == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CallInContext(
      Entry::cuMemcpy, Logged(to, from, bytes), [&](Context& context) {
        return CopyAny(context, to, from, bytes, nullptr, Wait::kYes);
      });
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       CUstream stream) {
  return CallInContext(Entry::cuMemcpyAsync, Logged(to, from, bytes, stream),
                       [&](Context& context) {
                         return CopyAny(context, to, from, bytes, stream,
                                        Wait::kNo);
                       });
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return CallInContext(
      Entry::cuMemcpyHtoD_v2, Logged(to, from, bytes), [&](Context& context) {
        return CopyIn(context, to, from, bytes, nullptr, Wait::kYes);
      });
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return CallInContext(
      Entry::cuMemcpyDtoH_v2, Logged(to, from, bytes), [&](Context& context) {
        return CopyOut(context, to, from, bytes, nullptr, Wait::kYes);
      });
}

// As CUDA documents, copies within a device are asynchronous to the host.
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CallInContext(Entry::cuMemcpyDtoD_v2, Logged(to, from, bytes),
                       [&](Context& context) {
                         return CopyWithin(context, to, from, bytes, nullptr);
                       });
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                              CUstream stream) {
  return CallInContext(Entry::cuMemcpyHtoDAsync_v2,
                       Logged(to, from, bytes, stream), [&](Context& context) {
                         return CopyIn(context, to, from, bytes, stream,
                                       Wait::kNo);
                       });
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  return CallInContext(Entry::cuMemcpyDtoHAsync_v2,
                       Logged(to, from, bytes, stream), [&](Context& context) {
                         return CopyOut(context, to, from, bytes, stream,
                                        Wait::kNo);
                       });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  return ForwardInContext(Entry::cuMemcpyDtoDAsync_v2, CopyWithin, to, from,
                          bytes, stream);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes) {
  return CallInContext(Entry::cuMemcpyPeer,
                       Logged(to, to_context, from, from_context, bytes),
                       [&](Context& context) {
                         return CopyPeer(context, to, to_context, from,
                                         from_context, bytes, nullptr);
                       });
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context,
                           CUdeviceptr from, CUcontext from_context,
                           size_t bytes, CUstream stream) {
  return ForwardInContext(Entry::cuMemcpyPeerAsync, CopyPeer, to, to_context,
                          from, from_context, bytes, stream);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes,
                            size_t count, CUmemcpyAttributes* attributes,
                            size_t* attribute_starts, size_t attribute_count,
                            size_t* failed, CUstream stream) {
  return CallInContext(
      Entry::cuMemcpyBatchAsync, Logged(count, stream), [&](Context& context) {
        return CopyBatch(context, to, from, bytes, count, attributes,
                         attribute_starts, attribute_count, failed, stream);
      });
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from,
                               size_t* bytes, size_t count,
                               CUmemcpyAttributes* attributes,
                               size_t* attribute_starts, size_t attribute_count,
                               CUstream stream) {
  return CallInContext(Entry::cuMemcpyBatchAsync_v2, Logged(count, stream),
                       [&](Context& context) {
                         return CopyBatch(context, to, from, bytes, count,
                                          attributes, attribute_starts,
                                          attribute_count, nullptr, stream);
                       });
}

}  // namespace fineserve::driver
