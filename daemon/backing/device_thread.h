#ifndef DAEMON_BACKING_DEVICE_THREAD_H_
#define DAEMON_BACKING_DEVICE_THREAD_H_

#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "daemon/backing/device_queue.h"
#include "daemon/backing/mailbox.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::backing {

// Makes the calls on threads of its own, which alone use the backing while this
// object lives: one for the driver, and one to list processes, because NVML
// waits for seconds while the driver tears a process down. The caller shares no
// lock with them, so that it waits for neither. The destructor lets the calls
// under way end and drops those that have not begun. One thread calls; any may
// wait for the descriptor.
class DeviceThread final : public DeviceQueue {
 public:
  explicit DeviceThread(Backing* backing);
  ~DeviceThread() override;

  void Make(slab::SlabId slab) override;
  void Fill(slab::SlabId slab) override;
  void Drop(slab::SlabId slab) override;
  void ListProcesses(std::vector<pid_t> awaited) override;
  void NoteProcesses() override;
  void MeasureFree() override;
  void Export(uint64_t ticket, std::vector<uint32_t> granules) override;
  std::vector<Completion> Take() override;

  // Readable while Take has something to return.
  int descriptor() const { return ready_.get(); }

 private:
  using Call = std::function<void()>;
  struct Lane {
    Mailbox<Call> posted;
    driver::Descriptor wake;  // an eventfd: something was posted, or it stops
    std::deque<Call> calls;   // taken by its thread, which alone uses them
    std::thread thread;
  };

  void Post(Lane* lane, Call call);
  // The next call; null when it is time to stop, or for fills to be looked at.
  Call Next(Lane* lane);
  void Finish(std::vector<Completion> done);
  void RunDriver();
  void RunLister();
  // Acquire: pairs with the release in the destructor.
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  Backing* const backing_;
  InlineQueue queue_;               // the driver's thread alone uses it
  const driver::Descriptor ready_;  // an eventfd
  Mailbox<Completion> done_;
  std::atomic<bool> stopping_{false};
  Lane driver_;
  Lane lister_;
};

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_DEVICE_THREAD_H_
