#ifndef TOOLS_EMUCUDA_STREAM_STREAM_H_
#define TOOLS_EMUCUDA_STREAM_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/driver_types.h"

namespace fineserve::emucuda {

class Capture;
class Context;
class Stream;

// Stream priorities are hints, as on a device of NVIDIA's: lower is more
// urgent.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

// A place in a stream: everything up to and including its position-th
// operation.
struct Dependency {
  std::shared_ptr<Stream> stream;
  uint64_t position = 0;
};

struct Operation {
  std::vector<Dependency> after;
  std::function<void()> run;
  bool is_work = true;  // work is delayed (SetStreamDelay), markers are not
};

// A FIFO of operations, executed one at a time by a thread of its own, which
// starts with the first operation and ends once the stream is closed and
// empty. Thread-safe. No lock is held while an operation runs or is delayed.
//
// Waits cannot form a cycle: an operation depends only on operations that were
// submitted before it (Context::Submit orders submissions).
//
// The worker is detached and keeps the stream alive, so that process exit
// neither waits for it nor destroys what it uses.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // Blocking streams synchronise with their context's default stream.
  Stream(Context& context, bool blocking, int priority = 0)
      : context_(context),
        blocking_(blocking),
        priority_(priority),
        id_(NextId()) {}

  Context& context() const { return context_; }
  bool blocking() const { return blocking_; }
  int priority() const { return priority_; }  // a hint, not obeyed
  uint64_t id() const { return id_; }         // of no other stream, ever

  // OUT_OF_MEMORY if no thread can be started; CONTEXT_IS_DESTROYED once
  // closed.
  CUresult Push(Operation operation);
  Dependency Tail();
  bool Idle();
  bool Reached(uint64_t position);
  void WaitFor(uint64_t position);
  void WaitIdle() { WaitFor(Tail().position); }
  // The capture that this stream is in; null if none.
  std::shared_ptr<Capture> capture() const;
  // False if it is in one already.
  bool StartCapture(std::shared_ptr<Capture> capture);
  void StopCapture();
  // Refuses further operations; what is queued still runs.
  void Close();

 private:
  static uint64_t NextId();
  void Work();
  // False once closed and empty.
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

// Applies to every stream of the process, from the next operation on.
void SetStreamDelay(unsigned microseconds);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_STREAM_STREAM_H_
