#include "daemon/backing/device_thread.h"

#include <signal.h>
#include <sys/eventfd.h>

#include <iterator>
#include <utility>

namespace fineserve::backing {
namespace {

// How often the device is asked for fills that complete: one takes 10 µs to
// some ms.
constexpr std::chrono::microseconds kFillPoll{500};

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
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  has_work_.notify_all();
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
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lane->calls.push_back(std::move(call));
  }
  has_work_.notify_all();
}

std::vector<Completion> DeviceThread::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  eventfd_t count;
  eventfd_read(ready_.get(), &count);
  return std::exchange(done_, {});
}

void DeviceThread::Finish(std::vector<Completion> done) {
  if (done.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::move(done.begin(), done.end(), std::back_inserter(done_));
  eventfd_write(ready_.get(), 1);
}

DeviceThread::Call DeviceThread::Next(Lane* lane, bool* stopping) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_work = [&] { return stopping_ || !lane->calls.empty(); };
  if (lane == &driver_ && queue_.filling()) {
    has_work_.wait_for(lock, kFillPoll, has_work);
  } else {
    has_work_.wait(lock, has_work);
  }
  *stopping = stopping_;
  if (stopping_ || lane->calls.empty()) return nullptr;
  Call call = std::move(lane->calls.front());
  lane->calls.pop_front();
  return call;
}

void DeviceThread::RunDriver() {
  backing_->EnterThread();
  for (bool stopping = false, lost = false; !lost;) {
    const Call call = Next(&driver_, &stopping);
    if (stopping) return;
    if (call != nullptr) call();
    std::vector<Completion> done = queue_.Take();
    lost = !done.empty() && absl::holds_alternative<Lost>(done.back());
    Finish(std::move(done));
  }
}

void DeviceThread::RunLister() {
  for (bool stopping = false;;) {
    const Call call = Next(&lister_, &stopping);
    if (stopping) return;
    call();
  }
}

}  // namespace fineserve::backing
