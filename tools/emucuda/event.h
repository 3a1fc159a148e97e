#ifndef TOOLS_EMUCUDA_EVENT_H_
#define TOOLS_EMUCUDA_EVENT_H_

#include <cstdint>
#include <memory>

#include "tools/emucuda/driver_types.h"
#include "tools/emucuda/mutex.h"

namespace fineserve::emucuda {

// One recording of an event. Thread-safe.
class Completion {
 public:
  void Finish();
  void Wait();
  bool finished();
  // Monotonic time of Finish; 0 before.
  uint64_t finished_ns();

 private:
  Mutex mutex_;
  Condition changed_;
  uint64_t finished_ns_ EMUCUDA_GUARDED_BY(mutex_) = 0;
};

// Names its latest recording; who waits keeps the recording it saw.
// Thread-safe.
class Event {
 public:
  explicit Event(unsigned flags) : flags_(flags) {}

  bool timed() const { return (flags_ & driver::CU_EVENT_DISABLE_TIMING) == 0; }
  std::shared_ptr<Completion> Latest() const;  // null if never recorded
  void Record(std::shared_ptr<Completion> recording);

 private:
  const unsigned flags_;
  mutable Mutex mutex_;
  std::shared_ptr<Completion> latest_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_EVENT_H_
