#include "tools/lab/device/stream/capture.h"

#include <utility>
#include <vector>

#include "tools/lab/device/stream/stream.h"

namespace fineserve::emucuda {

using driver::CU_STREAM_CAPTURE_MODE_GLOBAL;
using driver::CU_STREAM_CAPTURE_MODE_RELAXED;

namespace {

// The captures in progress. Never destroyed, like all driver state.
struct Captures {
  Mutex mutex;
  std::map<const Capture*, std::weak_ptr<Capture>> all
      EMUCUDA_GUARDED_BY(mutex);
  // Relaxed: a program that starts a capture and makes an unsafe call without
  // synchronising the two cannot know which came first.
  std::atomic<size_t> count{0};

  static Captures& Get() {
    static auto& captures = *new Captures;
    return captures;
  }
  void Enter(const std::shared_ptr<Capture>& capture) {
    const MutexLock lock(mutex);
    all[capture.get()] = capture;
    count.store(all.size(), std::memory_order_relaxed);
  }
  void Leave(const Capture* capture) {
    const MutexLock lock(mutex);
    all.erase(capture);
    count.store(all.size(), std::memory_order_relaxed);
  }
  std::vector<std::shared_ptr<Capture>> List() {
    const MutexLock lock(mutex);
    std::vector<std::shared_ptr<Capture>> list;
    for (const auto& [_, weak] : all) {
      if (auto capture = weak.lock()) list.push_back(std::move(capture));
    }
    return list;
  }
};

uint64_t NextCaptureId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

CUresult Capture::Begin(const std::shared_ptr<Stream>& stream,
                        driver::CUstreamCaptureMode mode) {
  auto capture = std::make_shared<Capture>(stream, mode);
  if (!stream->StartCapture(capture)) return CUDA_ERROR_ILLEGAL_STATE;
  Captures::Get().Enter(capture);
  return CUDA_SUCCESS;
}

Capture::Capture(const std::shared_ptr<Stream>& origin,
                 driver::CUstreamCaptureMode mode)
    : id_(NextCaptureId()),
      origin_(origin.get()),
      mode_(mode),
      handle_(reinterpret_cast<driver::CUgraph>(graph_.get())) {
  const MutexLock lock(mutex_);
  streams_[origin_].stream = origin;
}

// Leaves the list: a capture is still listed if its stream was destroyed during
// the capture.
Capture::~Capture() { Captures::Get().Leave(this); }

CUresult Capture::Invalidate(CUresult why) {
  valid_.store(false, std::memory_order_release);
  return why;
}

CUresult Capture::Add(const Stream& stream, std::function<CUresult()> work) {
  if (!valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const MutexLock lock(mutex_);
  ++streams_[&stream].added;
  graph_->Append([work = std::move(work)](int) { return work(); });
  return CUDA_SUCCESS;
}

std::shared_ptr<const CapturedPoint> Capture::PointOf(const Stream& stream) {
  const MutexLock lock(mutex_);
  return std::make_shared<CapturedPoint>(
      CapturedPoint{weak_from_this(), &stream, streams_[&stream].added});
}

CUresult Capture::Wait(const std::shared_ptr<Stream>& stream,
                       const CapturedPoint& point) {
  if (!valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const auto captures = stream->capture();
  if (captures != nullptr && captures.get() != this) {
    captures->Invalidate(CUDA_SUCCESS);
    return Invalidate(CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (captures == nullptr && !stream->StartCapture(shared_from_this())) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  const MutexLock lock(mutex_);
  streams_[stream.get()].stream = stream;
  if (stream.get() != point.stream) {
    uint64_t& awaited = streams_[point.stream].awaited;
    if (awaited < point.added) awaited = point.added;
  }
  return CUDA_SUCCESS;
}

CUresult Capture::End(const Stream& stream, driver::CUgraph* graph) {
  *graph = nullptr;
  if (&stream != origin_) {
    return Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  }
  if (mode_ != CU_STREAM_CAPTURE_MODE_RELAXED &&
      thread_ != std::this_thread::get_id()) {
    return Invalidate(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
  CUresult result =
      valid() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::map<const Stream*, Joined> streams;
  {
    const MutexLock lock(mutex_);
    streams.swap(streams_);
  }
  for (const auto& [joined, state] : streams) {
    if (result == CUDA_SUCCESS && joined != origin_ &&
        state.awaited < state.added) {
      result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    if (const auto alive = state.stream.lock()) alive->StopCapture();
  }
  Captures::Get().Leave(this);
  if (result == CUDA_SUCCESS) *graph = Graphs().Add(graph_);
  return result;
}

// CUDA documents these rules at cuThreadExchangeStreamCaptureMode.
bool Capture::ForbidsUnsafeCalls() const {
  const driver::CUstreamCaptureMode caller = ThreadCaptureMode();
  if (caller == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (thread_ == std::this_thread::get_id()) {
    return mode_ != CU_STREAM_CAPTURE_MODE_RELAXED;
  }
  return caller == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         mode_ == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

driver::CUstreamCaptureStatus CaptureStatus(const Capture* capture) {
  if (capture == nullptr) return driver::CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->valid() ? driver::CU_STREAM_CAPTURE_STATUS_ACTIVE
                          : driver::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

driver::CUstreamCaptureMode& ThreadCaptureMode() {
  static constinit thread_local driver::CUstreamCaptureMode mode =
      CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult CheckUnsafeCall() {
  Captures& captures = Captures::Get();
  if (captures.count.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : captures.List()) {
    if (!capture->ForbidsUnsafeCalls()) continue;
    result = capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

}  // namespace fineserve::emucuda
