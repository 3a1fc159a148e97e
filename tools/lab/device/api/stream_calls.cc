// Exported functions: streams and events.

#include <algorithm>
#include <memory>
#include <utility>

#include "tools/lab/device/allocations/pool_table.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/handle_registry.h"
#include "tools/lab/device/stream/capture.h"
#include "tools/lab/device/stream/event.h"

namespace fineserve::driver {

using emucuda::CallInContext;
using emucuda::Completion;
using emucuda::Context;
using emucuda::Entry;
using emucuda::Event;
using emucuda::Events;
using emucuda::Logged;
using emucuda::Operation;
using emucuda::Stream;

namespace {

// Runs `body(stream)` on the stream behind a handle.
template <typename Body>
CUresult CallOnStream(Entry entry, CUstream handle, Body body) {
  const auto checked = [&](Context& context) {
    const auto stream = emucuda::FindStream(context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(*stream);
  };
  return CallInContext(entry, Logged(handle), checked);
}

// Runs `body(event)` on the event behind a handle.
template <typename Body>
CUresult CallOnEvent(Entry entry, CUevent handle, Body body) {
  const auto checked = [&](Context&) {
    const std::shared_ptr<Event> event = Events().Find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(*event);
  };
  return CallInContext(entry, Logged(handle), checked);
}

// Priorities out of range are clamped, as a real driver does.
CUresult Create(Context& context, CUstream* stream, unsigned flags,
                int priority = 0) {
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  *stream = emucuda::Streams().Add(context.CreateStream(
      blocking, std::clamp(priority, emucuda::kGreatestPriority,
                           emucuda::kLeastPriority)));
  return CUDA_SUCCESS;
}

CUresult Record(Event& event, Stream& stream) {
  if (!event.BelongsTo(stream.context())) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto capture = stream.capture()) {
    event.RecordCaptured(capture->PointOf(stream));
    return CUDA_SUCCESS;
  }
  std::shared_ptr<Completion> recording = event.NewRecording();
  Operation operation = {.after = {},
                         .run = [recording] { recording->Finish(); },
                         .is_work = false};
  const CUresult result = stream.context().Submit(stream, std::move(operation));
  if (result != CUDA_SUCCESS) {
    recording->Finish();
    return result;
  }
  event.Record(std::move(recording));
  return CUDA_SUCCESS;
}

// Makes a stream that waits for a capture's event join the capture. A stream
// that is being captured cannot wait for work outside its capture.
CUresult WaitCaptured(const Event& event, const std::shared_ptr<Stream>& stream,
                      bool* done) {
  const auto point = event.captured();
  const auto capture = point == nullptr ? nullptr : point->capture.lock();
  *done = true;
  if (capture != nullptr) return capture->Wait(stream, *point);
  if (const auto own = stream->capture()) {
    return own->Invalidate(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  *done = false;
  return CUDA_SUCCESS;
}

// True if the event belongs to a capture. Querying such an event ends the
// capture, in any mode.
bool IsCaptured(const Event& event) {
  const auto point = event.captured();
  if (point == nullptr) return false;
  if (const auto capture = point->capture.lock()) {
    capture->Invalidate(CUDA_ERROR_CAPTURED_EVENT);
  }
  return true;
}

// Waits for the event's latest recording; does nothing if there is none.
CUresult WaitEvent(const Event& event, Stream& stream) {
  bool done;
  const CUresult result = WaitCaptured(event, stream.shared_from_this(), &done);
  if (done) return result;
  const std::shared_ptr<Completion> recording = event.Latest();
  if (recording == nullptr) return CUDA_SUCCESS;
  Operation operation = {
      .after = {}, .run = [recording] { recording->Wait(); }, .is_work = false};
  return stream.context().Submit(stream, std::move(operation));
}

CUresult Elapsed(const Event& start, const Event& end, float* milliseconds) {
  const std::shared_ptr<Completion> first = start.Latest();
  const std::shared_ptr<Completion> last = end.Latest();
  if (!start.timed() || !end.timed() || first == nullptr || last == nullptr ||
      !start.SharesContextWith(end)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!first->finished() || !last->finished()) return CUDA_ERROR_NOT_READY;
  const auto ns = static_cast<int64_t>(last->finished_ns()) -
                  static_cast<int64_t>(first->finished_ns());
  *milliseconds = static_cast<float>(static_cast<double>(ns) / 1e6);
  return CUDA_SUCCESS;
}

// Records an event. Here, an external recording (flag 1) counts as a recording
// inside the capture.
CUresult RecordOn(Entry entry, CUevent event, CUstream stream, unsigned flags) {
  return CallOnStream(entry, stream, [&](Stream& s) {
    if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<Event> found = Events().Find(event);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return Record(*found, s);
  });
}

CUresult ElapsedBetween(Entry entry, float* milliseconds, CUevent start,
                        CUevent end) {
  return CallOnEvent(entry, start, [&](Event& first) {
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto last = Events().Find(end);
    if (last == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return Elapsed(first, *last, milliseconds);
  });
}

// An event that other processes may open cannot measure time.
CUresult CreateEvent(const Context& context, CUevent* event, unsigned flags) {
  std::shared_ptr<emucuda::SharedEvent> shared;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    if ((flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    shared = emucuda::SharedEvent::Create();
    if (shared == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *event =
      Events().Add(std::make_shared<Event>(context, flags, std::move(shared)));
  return CUDA_SUCCESS;
}

// After a synchronisation, memory pools release what they can.
CUresult Synchronized(CUresult result) {
  emucuda::Pools().TrimToThresholds();
  return result;
}

}  // namespace

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return CallInContext(Entry::cuCtxGetStreamPriorityRange, [&](Context&) {
    if (least != nullptr) *least = emucuda::kLeastPriority;
    if (greatest != nullptr) *greatest = emucuda::kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return CallInContext(
      Entry::cuStreamCreate, Logged(flags),
      [&](Context& context) { return Create(context, stream, flags); });
}

// Priorities are hints, which the emulator ignores.
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags,
                                    int priority) {
  return CallInContext(Entry::cuStreamCreateWithPriority,
                       Logged(flags, priority), [&](Context& context) {
                         return Create(context, stream, flags, priority);
                       });
}

// Returns at once; queued work still runs.
CUresult cuStreamDestroy_v2(CUstream stream) {
  return CallInContext(Entry::cuStreamDestroy_v2, Logged(stream),
                       [&](Context&) {
                         const auto removed = emucuda::Streams().Remove(stream);
                         if (removed == nullptr)
                           return CUDA_ERROR_INVALID_HANDLE;
                         removed->Close();
                         return CUDA_SUCCESS;
                       });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return CallOnStream(Entry::cuStreamSynchronize, stream, [](Stream& s) {
    return Synchronized(s.context().Synchronize(s));
  });
}

CUresult cuStreamQuery(CUstream stream) {
  return CallOnStream(Entry::cuStreamQuery, stream, [](Stream& s) {
    if (const auto capture = s.capture()) {
      return capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (!s.context().Idle(s)) return CUDA_ERROR_NOT_READY;
    return s.context().sticky();
  });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return CallOnStream(Entry::cuStreamIsCapturing, stream, [&](Stream& s) {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *status = emucuda::CaptureStatus(s.capture().get());
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return CallOnStream(Entry::cuStreamWaitEvent, stream, [&](Stream& s) {
    const std::shared_ptr<Event> found = Events().Find(event);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return WaitEvent(*found, s);
  });
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user_data) {
  return CallOnStream(Entry::cuLaunchHostFunc, stream, [&](Stream& s) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return s.context().SubmitWork(s, [function, user_data] {
      function(user_data);
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return CallInContext(Entry::cuEventCreate, Logged(flags),
                       [&](Context& context) {
                         if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
                         return CreateEvent(context, event, flags);
                       });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return RecordOn(Entry::cuEventRecord, event, stream, 0);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream,
                                unsigned int flags) {
  return RecordOn(Entry::cuEventRecordWithFlags, event, stream, flags);
}

CUresult cuEventQuery(CUevent event) {
  return CallOnEvent(Entry::cuEventQuery, event, [](Event& e) {
    if (IsCaptured(e)) return CUDA_ERROR_CAPTURED_EVENT;
    const auto recording = e.Latest();
    if (recording == nullptr || recording->finished()) return CUDA_SUCCESS;
    return CUDA_ERROR_NOT_READY;
  });
}

// If the context dies while we wait, this call reports it.
CUresult cuEventSynchronize(CUevent event) {
  return CallOnEvent(Entry::cuEventSynchronize, event, [](Event& e) {
    if (IsCaptured(e)) return CUDA_ERROR_CAPTURED_EVENT;
    if (const auto recording = e.Latest()) recording->Wait();
    return Synchronized(emucuda::CurrentContext()->sticky());
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return ElapsedBetween(Entry::cuEventElapsedTime, milliseconds, start, end);
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start,
                               CUevent end) {
  return ElapsedBetween(Entry::cuEventElapsedTime_v2, milliseconds, start, end);
}

CUresult cuEventDestroy_v2(CUevent event) {
  return CallInContext(Entry::cuEventDestroy_v2, Logged(event), [&](Context&) {
    return Events().Remove(event) != nullptr ? CUDA_SUCCESS
                                             : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace fineserve::driver
