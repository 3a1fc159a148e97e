#include "tools/lab/device/stream/context.h"

#include <utility>

#include "tools/lab/device/stream/capture.h"

namespace fineserve::emucuda {

namespace {

uint64_t NextContextId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Context::Context(int device)
    : device_(device),
      id_(NextContextId()),
      default_stream_(std::make_shared<Stream>(*this, /*blocking=*/true)) {}

void Context::Destroy() {
  alive_.store(false, std::memory_order_release);
  for (const auto& stream : Streams()) {
    stream->WaitIdle();
    stream->Close();
  }
}

void Context::Revive() {
  const MutexLock lock(mutex_);
  default_stream_ = std::make_shared<Stream>(*this, /*blocking=*/true);
  streams_.clear();
  per_thread_streams_.clear();
  sticky_.store(CUDA_SUCCESS, std::memory_order_release);
  alive_.store(true, std::memory_order_release);
}

void Context::Fail(CUresult error) {
  CUresult none = CUDA_SUCCESS;  // keeps the first error
  sticky_.compare_exchange_strong(none, error, std::memory_order_release,
                                  std::memory_order_relaxed);
}

std::shared_ptr<Stream> Context::default_stream() const {
  const MutexLock lock(mutex_);
  return default_stream_;
}

std::shared_ptr<Stream> Context::per_thread_stream() {
  const MutexLock lock(mutex_);
  auto& stream = per_thread_streams_[std::this_thread::get_id()];
  if (stream == nullptr) stream = NewStream(/*blocking=*/true, /*priority=*/0);
  return stream;
}

std::shared_ptr<Stream> Context::CreateStream(bool blocking, int priority) {
  const MutexLock lock(mutex_);
  return NewStream(blocking, priority);
}

std::shared_ptr<Stream> Context::NewStream(bool blocking, int priority) {
  auto stream = std::make_shared<Stream>(*this, blocking, priority);
  std::erase_if(streams_, [](const auto& other) { return other.expired(); });
  streams_.push_back(stream);
  return stream;
}

CUresult Context::Submit(Stream& stream, Operation operation) {
  if (const auto capture = stream.capture()) {
    return capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  const MutexLock lock(mutex_);
  if (const CUresult result = CheckCaptures(stream)) return result;
  operation.after = LegacyOrder(stream);
  return stream.Push(std::move(operation));
}

// Invalidates the capture of a blocking stream when the default stream gets
// work, because that work would wait for work which the capture never submits.
CUresult Context::CheckCaptures(const Stream& stream) {
  if (&stream != default_stream_.get()) return CUDA_SUCCESS;
  for (const auto& weak : streams_) {
    const std::shared_ptr<Stream> other = weak.lock();
    if (other == nullptr || !other->blocking()) continue;
    if (const auto capture = other->capture()) {
      return capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  }
  return CUDA_SUCCESS;
}

CUresult Context::SubmitWork(Stream& stream, std::function<CUresult()> work) {
  if (const auto capture = stream.capture()) {
    return capture->Add(stream, std::move(work));
  }
  auto run = [this, work = std::move(work)] {
    if (sticky() != CUDA_SUCCESS) return;
    if (const CUresult error = work()) Fail(error);
  };
  return Submit(stream, {.after = {}, .run = std::move(run)});
}

CUresult Context::RunWork(Stream& stream, std::function<CUresult()> work) {
  if (const auto capture = stream.capture()) {
    return capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  if (const CUresult result = SubmitWork(stream, std::move(work))) {
    return result;
  }
  stream.WaitIdle();
  return sticky();
}

CUresult Context::Synchronize(Stream& stream) {
  if (const auto capture = stream.capture()) {
    return capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  std::vector<Dependency> before;
  {
    const MutexLock lock(mutex_);
    before = LegacyOrder(stream);
  }
  for (const Dependency& other : before) other.stream->WaitFor(other.position);
  stream.WaitIdle();
  return sticky();
}

bool Context::Idle(Stream& stream) {
  const MutexLock lock(mutex_);
  return stream.Idle() && LegacyOrder(stream).empty();
}

CUresult Context::Synchronize() {
  CUresult result = CUDA_SUCCESS;
  for (const auto& stream : Streams()) {
    if (const auto capture = stream->capture()) {
      result = capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  if (result != CUDA_SUCCESS) return result;
  for (const auto& stream : Streams()) stream->WaitIdle();
  return sticky();
}

void Context::AwaitWork() const {
  for (const auto& stream : Streams()) stream->WaitIdle();
}

std::vector<Dependency> Context::LegacyOrder(const Stream& stream) {
  std::vector<Dependency> before;
  if (!stream.blocking()) return before;
  if (&stream != default_stream_.get()) {
    if (!default_stream_->Idle()) before.push_back(default_stream_->Tail());
    return before;
  }
  for (const auto& weak : streams_) {
    const std::shared_ptr<Stream> other = weak.lock();
    if (other == nullptr || !other->blocking() || other->Idle()) continue;
    before.push_back(other->Tail());
  }
  return before;
}

std::vector<std::shared_ptr<Stream>> Context::Streams() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Stream>> streams = {default_stream_};
  for (const auto& weak : streams_) {
    if (auto stream = weak.lock()) streams.push_back(std::move(stream));
  }
  return streams;
}

}  // namespace fineserve::emucuda
