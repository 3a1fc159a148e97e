// Exported functions: properties of streams, callbacks, captures.

#include <utility>

#include "tools/lab/device/allocations/legacy_heap.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/stream/capture.h"

namespace fineserve::driver {

using emucuda::BlockKind;
using emucuda::Call;
using emucuda::CallInContext;
using emucuda::Capture;
using emucuda::Context;
using emucuda::Entry;
using emucuda::Logged;
using emucuda::MemoryBlock;
using emucuda::Require;
using emucuda::Stream;

namespace {

// Runs `body(stream)` on the stream behind a handle, if `out` is given.
template <typename Body>
CUresult AskStream(Entry entry, CUstream handle, const void* out, Body body) {
  const auto checked = [&](Context& context) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto stream = emucuda::FindStream(context, handle);
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(*stream);
  };
  return CallInContext(entry, Logged(handle), checked);
}

CUresult CaptureInfo(const Stream& stream, CUstreamCaptureStatus* status,
                     uint64_t* id, CUgraph* graph,
                     const CUgraphNode** dependencies, size_t* count) {
  const auto capture = stream.capture();
  *status = emucuda::CaptureStatus(capture.get());
  if (*status == CU_STREAM_CAPTURE_STATUS_NONE) {
    if (id != nullptr) *id = 0;
    return CUDA_SUCCESS;
  }
  if (id != nullptr) *id = capture->id();
  // This graph cannot be changed before the capture has ended. It names no
  // dependencies, because nodes run in the order of the calls anyway.
  if (graph != nullptr) *graph = capture->handle();
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return CUDA_SUCCESS;
}

CUresult Begin(Stream& stream, CUstreamCaptureMode mode) {
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (&stream == stream.context().default_stream().get()) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return Capture::Begin(stream.shared_from_this(), mode);
}

}  // namespace

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return AskStream(Entry::cuStreamGetPriority, stream, priority,
                   [&](Stream& s) {
                     *priority = s.priority();
                     return CUDA_SUCCESS;
                   });
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  return AskStream(Entry::cuStreamGetFlags, stream, flags, [&](Stream& s) {
    *flags = s.blocking() ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  return AskStream(Entry::cuStreamGetId, stream, id, [&](Stream& s) {
    *id = s.id();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return AskStream(Entry::cuStreamGetCtx, stream, context, [&](Stream& s) {
    *context = reinterpret_cast<CUcontext>(&s.context());
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return AskStream(Entry::cuStreamGetDevice, stream, device, [&](Stream& s) {
    *device = s.context().device();
    return CUDA_SUCCESS;
  });
}

// The callback runs even if the context has died; it then receives the error.
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback,
                             void* user_data, unsigned int flags) {
  return AskStream(
      Entry::cuStreamAddCallback, stream,
      reinterpret_cast<const void*>(callback), [&](Stream& s) {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        Context& context = s.context();
        return context.Submit(
            s, {.after = {}, .run = [stream, callback, user_data, &context] {
                  callback(stream, context.sticky(), user_data);
                }});
      });
}

// Attachment has no effect here: every stream may use managed memory.
CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address,
                                size_t bytes, unsigned int flags) {
  return AskStream(
      Entry::cuStreamAttachMemAsync, stream,
      reinterpret_cast<const void*>(address), [&](Stream& s) {
        if (const auto capture = s.capture()) {
          return capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        MemoryBlock block;
        const bool managed = emucuda::Heap().Find(address, &block) &&
                             block.kind == BlockKind::kManaged;
        const bool known = flags == CU_MEM_ATTACH_GLOBAL ||
                           flags == CU_MEM_ATTACH_HOST ||
                           flags == CU_MEM_ATTACH_SINGLE;
        return managed && known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      });
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return AskStream(Entry::cuStreamBeginCapture, stream, &stream, [](Stream& s) {
    return Begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
  });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return AskStream(Entry::cuStreamBeginCapture_v2, stream, &mode,
                   [&](Stream& s) { return Begin(s, mode); });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return AskStream(Entry::cuStreamEndCapture, stream, graph, [&](Stream& s) {
    const auto capture = s.capture();
    return capture == nullptr ? CUDA_ERROR_ILLEGAL_STATE
                              : capture->End(s, graph);
  });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream,
                                   CUstreamCaptureStatus* status, uint64_t* id,
                                   CUgraph* graph,
                                   const CUgraphNode** dependencies,
                                   size_t* count) {
  return AskStream(
      Entry::cuStreamGetCaptureInfo_v2, stream, status, [&](Stream& s) {
        return CaptureInfo(s, status, id, graph, dependencies, count);
      });
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream,
                                   CUstreamCaptureStatus* status, uint64_t* id,
                                   CUgraph* graph,
                                   const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges,
                                   size_t* count) {
  return AskStream(
      Entry::cuStreamGetCaptureInfo_v3, stream, status, [&](Stream& s) {
        if (edges != nullptr) *edges = nullptr;
        return CaptureInfo(s, status, id, graph, dependencies, count);
      });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return Call(Entry::cuThreadExchangeStreamCaptureMode, Require::kInit, [&] {
    if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(emucuda::ThreadCaptureMode(), *mode);
    return CUDA_SUCCESS;
  });
}

}  // namespace fineserve::driver
