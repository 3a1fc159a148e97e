#ifndef TOOLS_LAB_DEVICE_STREAM_EVENT_H_
#define TOOLS_LAB_DEVICE_STREAM_EVENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/driver/cuda_structs.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

// The state of an interprocess event: two counters in a memfd, which every
// process that opened the event maps. Recordings are numbered from 1. The
// recordings of a dead process count as finished, because its work is gone.
// Thread-safe.
class SharedEvent {
 public:
  // Returns null if the kernel refuses the memfd.
  static std::shared_ptr<SharedEvent> Create();
  // Returns null if the handle names no event of a living process of this user.
  static std::shared_ptr<SharedEvent> Import(
      const driver::CUipcEventHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void Export(driver::CUipcEventHandle* handle) const;

  uint64_t Record();        // starts a new recording
  uint64_t Latest() const;  // 0 if never recorded
  void Finish(uint64_t recording);
  bool Finished(uint64_t recording) const;
  void Wait(uint64_t recording) const;

 private:
  struct Page {
    std::atomic<uint64_t> recorded;
    std::atomic<uint64_t> finished;
    std::atomic<uint32_t> recorder;  // pid
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  SharedEvent(Descriptor file, Page* page)
      : file_(std::move(file)), page_(page) {}
  static std::shared_ptr<SharedEvent> Map(Descriptor file);

  const Descriptor file_;
  Page* const page_;
};

class Context;
struct CapturedPoint;  // capture.h

// One recording of an event. Thread-safe.
class Completion {
 public:
  Completion() = default;
  // Recording number `recording` of an interprocess event.
  Completion(std::shared_ptr<SharedEvent> shared, uint64_t recording)
      : shared_(std::move(shared)), recording_(recording) {}

  void Finish();
  void Wait();
  bool finished();
  // Returns the monotonic time of Finish, or 0 before it. Not kept for
  // interprocess events.
  uint64_t finished_ns();

 private:
  const std::shared_ptr<SharedEvent> shared_;  // null unless interprocess
  const uint64_t recording_ = 0;

  Mutex mutex_;
  Condition changed_;
  uint64_t finished_ns_ EMUCUDA_GUARDED_BY(mutex_) = 0;
};

// An event refers to its latest recording; a waiter keeps the recording that it
// saw first. An event belongs to a context, and can only be recorded on that
// context's streams (CUDA C++ Programming Guide, "Stream and Event Behavior").
// Thread-safe.
class Event {
 public:
  // `shared` is the state of an interprocess event, and null for other events.
  Event(const Context& context, unsigned flags,
        std::shared_ptr<SharedEvent> shared = nullptr)
      : context_(context), flags_(flags), shared_(std::move(shared)) {}

  bool BelongsTo(const Context& context) const { return &context == &context_; }
  bool SharesContextWith(const Event& other) const {
    return BelongsTo(other.context_);
  }

  bool timed() const { return (flags_ & driver::CU_EVENT_DISABLE_TIMING) == 0; }
  const std::shared_ptr<SharedEvent>& shared() const { return shared_; }
  std::shared_ptr<Completion> Latest() const;  // null if never recorded
  // Makes a recording that the caller must pass to Record or finish itself.
  std::shared_ptr<Completion> NewRecording() const;
  void Record(std::shared_ptr<Completion> recording);
  // Returns the point in a capture at which the event was last recorded; null
  // if its last recording was outside captures, or if there is none.
  std::shared_ptr<const CapturedPoint> captured() const;
  void RecordCaptured(std::shared_ptr<const CapturedPoint> point);

 private:
  const Context& context_;
  const unsigned flags_;
  const std::shared_ptr<SharedEvent> shared_;
  mutable Mutex mutex_;
  std::shared_ptr<Completion> latest_ EMUCUDA_GUARDED_BY(mutex_);
  std::shared_ptr<const CapturedPoint> captured_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_STREAM_EVENT_H_
