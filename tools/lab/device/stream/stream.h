#ifndef TOOLS_LAB_DEVICE_STREAM_STREAM_H_
#define TOOLS_LAB_DEVICE_STREAM_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

class Capture;
class Context;
class Stream;

// The range of stream priorities, which are hints; a lower number is more
// urgent.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

// A point in a stream: after its first `position` operations.
struct Dependency {
  std::shared_ptr<Stream> stream;
  uint64_t position = 0;
};

struct Operation {
  std::vector<Dependency> after;
  std::function<void()> run;
  bool is_work = true;  // SetStreamDelay delays work, but not markers
};

// A FIFO of operations. A worker thread executes them one at a time; it starts
// with the first operation and ends once the stream is closed and empty.
// Thread-safe. No lock is held while an operation runs or is delayed.
//
// Waits cannot form a cycle: an operation depends only on operations that were
// submitted before it (Context::Submit orders submissions).
//
// The worker is detached and keeps the stream alive, so that process exit
// neither waits for it nor destroys what it uses.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // A blocking stream synchronises with its context's default stream.
  Stream(Context& context, bool blocking, int priority = 0)
      : context_(context),
        blocking_(blocking),
        priority_(priority),
        id_(NextId()) {}

  Context& context() const { return context_; }
  bool blocking() const { return blocking_; }
  int priority() const { return priority_; }  // a hint, without effect
  uint64_t id() const { return id_; }         // unique in this process

  // Returns OUT_OF_MEMORY if no thread can be started, and CONTEXT_IS_DESTROYED
  // once the stream is closed.
  CUresult Push(Operation operation);
  Dependency Tail();
  bool Idle();
  bool Reached(uint64_t position);
  void WaitFor(uint64_t position);
  void WaitIdle() { WaitFor(Tail().position); }
  // Returns the capture that this stream is in, or null.
  std::shared_ptr<Capture> capture() const;
  // Returns false if the stream is already in a capture.
  bool StartCapture(std::shared_ptr<Capture> capture);
  void StopCapture();
  // Makes the stream refuse further operations; queued ones still run.
  void Close();

 private:
  static uint64_t NextId();
  void Work();
  // Returns false once the stream is closed and empty.
  bool Next(Operation* operation);
  void Execute(Operation* operation);

  Context& context_;
  const bool blocking_;
  const int priority_;
  const uint64_t id_;

  mutable Mutex mutex_;
  Condition changed_;
  std::shared_ptr<Capture> capture_ EMUCUDA_GUARDED_BY(mutex_);
  std::deque<Operation> queue_ EMUCUDA_GUARDED_BY(mutex_);
  uint64_t pushed_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  uint64_t completed_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  bool working_ EMUCUDA_GUARDED_BY(mutex_) = false;
  bool closed_ EMUCUDA_GUARDED_BY(mutex_) = false;
};

// Sets the delay of all streams of the process, starting with the next
// operation.
void SetStreamDelay(unsigned microseconds);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_STREAM_STREAM_H_
