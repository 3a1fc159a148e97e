#include "daemon/backing/device_thread.h"

#include <signal.h>
#include <sys/eventfd.h>

#include <iterator>
#include <utility>

#include "absl/time/time.h"

namespace fineserve::backing {
namespace {

// How often the device is asked for fills that complete: one takes 10 µs to
// some ms.
constexpr absl::Duration kFillPoll = absl::Microseconds(500);

}  // namespace

DeviceThread::DeviceThread(Backing* backing)
    : backing_(backing),
      queue_(backing),
      ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Signals are for the thread that made us.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  driver_.thread = std::thread([this] { RunDriver(); });
  lister_.thread = std::thread([this] { RunLister(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

DeviceThread::~DeviceThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  driver_.thread.join();
  lister_.thread.join();
}

void DeviceThread::Make(slab::SlabId slab) {
  Post(&driver_, [this, slab] { queue_.Make(slab); });
}

void DeviceThread::Fill(slab::SlabId slab) {
  Post(&driver_, [this, slab] { queue_.Fill(slab); });
}

void DeviceThread::Drop(slab::SlabId slab) {
  Post(&driver_, [this, slab] { queue_.Drop(slab); });
}

void DeviceThread::Export(uint64_t ticket, std::vector<uint32_t> granules) {
  Post(&driver_, [this, ticket, granules = std::move(granules)] {
    queue_.Export(ticket, granules);
  });
}

void DeviceThread::ListProcesses() {
  Post(&lister_, [this] {
    std::vector<Completion> listed;
    listed.push_back(Listed{backing_->DevicePids()});
    Finish(std::move(listed));
  });
}

void DeviceThread::Post(Lane* lane, Call call) {
  absl::MutexLock lock(&mutex_);
  lane->calls.push_back(std::move(call));
}

std::vector<Completion> DeviceThread::Take() {
  absl::MutexLock lock(&mutex_);
  eventfd_t count;
  eventfd_read(ready_.get(), &count);
  return std::exchange(done_, {});
}

void DeviceThread::Finish(std::vector<Completion> done) {
  if (done.empty()) return;
  absl::MutexLock lock(&mutex_);
  std::move(done.begin(), done.end(), std::back_inserter(done_));
  eventfd_write(ready_.get(), 1);
}

DeviceThread::Call DeviceThread::Next(Lane* lane, absl::Duration most,
                                      bool* stopping) {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this, lane]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !lane->calls.empty();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&has_work), most);
  *stopping = stopping_;
  if (stopping_ || lane->calls.empty()) return nullptr;
  Call call = std::move(lane->calls.front());
  lane->calls.pop_front();
  return call;
}

void DeviceThread::RunDriver() {
  backing_->EnterThread();
  for (bool stopping = false, lost = false; !lost;) {
    const Call call =
        Next(&driver_, queue_.filling() ? kFillPoll : absl::InfiniteDuration(),
             &stopping);
    if (stopping) return;
    if (call != nullptr) call();
    std::vector<Completion> done = queue_.Take();
    lost = !done.empty() && absl::holds_alternative<Lost>(done.back());
    Finish(std::move(done));
  }
}

void DeviceThread::RunLister() {
  for (bool stopping = false;;) {
    const Call call = Next(&lister_, absl::InfiniteDuration(), &stopping);
    if (stopping) return;
    call();
  }
}

}  // namespace fineserve::backing
