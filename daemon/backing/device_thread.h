#ifndef DAEMON_BACKING_DEVICE_THREAD_H_
#define DAEMON_BACKING_DEVICE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/backing/device_queue.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::backing {

// Makes the calls on threads of its own, which alone use the backing while this
// object lives: one for the driver, and one to list processes, because NVML
// waits for seconds while the driver tears a process down. The destructor lets
// the calls under way end and drops those that have not begun. One thread
// calls; any may wait for the descriptor.
class DeviceThread final : public DeviceQueue {
 public:
  explicit DeviceThread(Backing* backing);
  ~DeviceThread() override;

  void Make(slab::SlabId slab) override;
  void Fill(slab::SlabId slab) override;
  void Drop(slab::SlabId slab) override;
  void ListProcesses() override;
  void Export(uint64_t ticket, std::vector<uint32_t> granules) override;
  std::vector<Completion> Take() override;

  // Readable while Take has something to return.
  int descriptor() const { return ready_.get(); }

 private:
  using Call = std::function<void()>;
  struct Lane {
    std::deque<Call> calls;
    std::thread thread;
  };

  void Post(Lane* lane, Call call);
  // The next call; null when it is time to stop, or for fills to be looked at.
  Call Next(Lane* lane, bool* stopping);
  void Finish(std::vector<Completion> done);
  void RunDriver();
  void RunLister();

  Backing* const backing_;
  InlineQueue queue_;               // the driver's thread alone uses it
  const driver::Descriptor ready_;  // an eventfd
  // Guards the lanes' calls and what follows. Not Abseil's mutex, whose library
  // is not built for TSan.
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::vector<Completion> done_;
  bool stopping_ = false;
  Lane driver_;
  Lane lister_;
};

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_DEVICE_THREAD_H_
