#include "daemon/fineserved/backing/device_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <iterator>
#include <utility>

#include "daemon/base/quiet_thread.h"

namespace fineserve::backing {
namespace {

// Interval at which the device is asked for completed fills; a fill takes 10 µs
// to some ms.
constexpr timespec kFillPoll = {0, 500'000};

driver::Descriptor MakeEvent() {
  return driver::Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

}  // namespace

void InlineQueue::Make(slab::SlabId slab) {
  done_.push_back(Made{slab, backing_->CreateSlab(slab)});
}

void InlineQueue::Fill(slab::SlabId slab) {
  absl::Status started = backing_->StartZero(slab);
  if (started.ok()) {
    ++filling_;
  } else {
    done_.push_back(Zeroed{slab, std::move(started)});
  }
}

void InlineQueue::Drop(slab::SlabId slab) { backing_->DestroySlab(slab); }

void InlineQueue::ListProcesses(std::vector<pid_t> awaited) {
  const uint64_t errors = backing_->MemoryErrors();
  done_.push_back(Listed{backing_->DevicePids(awaited), errors});
}

void InlineQueue::MeasureFree() {
  done_.push_back(Measured{backing_->FreeBytes()});
}

void InlineQueue::Export(uint64_t ticket, std::vector<uint32_t> granules) {
  Exported exported{ticket, {}, absl::OkStatus()};
  for (uint32_t granule : granules) {
    absl::StatusOr<driver::Descriptor> one = backing_->Export(granule);
    exported.status = one.status();
    if (!one.ok()) break;
    exported.granules.push_back(*std::move(one));
  }
  done_.push_back(std::move(exported));
}

std::vector<Completion> InlineQueue::Take() {
  absl::StatusOr<std::vector<slab::SlabId>> zeroed = backing_->TakeZeroed();
  if (!zeroed.ok()) {
    done_.push_back(Lost{zeroed.status()});
  } else {
    for (slab::SlabId slab : *zeroed) {
      done_.push_back(Zeroed{slab, absl::OkStatus()});
    }
    filling_ -= static_cast<uint32_t>(zeroed->size());
  }
  return std::exchange(done_, {});
}

DeviceThread::DeviceThread(Backing* backing)
    : backing_(backing), queue_(backing), ready_(MakeEvent()) {
  driver_.wake = MakeEvent();
  lister_.wake = MakeEvent();
  driver_.thread = base::QuietThread([this] { RunDriver(); });
  lister_.thread = base::QuietThread([this] { RunLister(); });
}

DeviceThread::~DeviceThread() {
  stopping_.store(true, std::memory_order_release);
  for (Lane* lane : {&driver_, &lister_}) eventfd_write(lane->wake.get(), 1);
  for (Lane* lane : {&driver_, &lister_}) lane->thread.join();
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

void DeviceThread::MeasureFree() {
  Post(&driver_, [this] { queue_.MeasureFree(); });
}

void DeviceThread::Export(uint64_t ticket, std::vector<uint32_t> granules) {
  Post(&driver_, [this, ticket, granules = std::move(granules)] {
    queue_.Export(ticket, granules);
  });
}

void DeviceThread::ListProcesses(std::vector<pid_t> awaited) {
  Post(&lister_, [this, awaited = std::move(awaited)] {
    const uint64_t errors = backing_->MemoryErrors();
    std::vector<Completion> listed;
    listed.push_back(Listed{backing_->DevicePids(awaited), errors});
    Finish(std::move(listed));
  });
}

void DeviceThread::NoteProcesses() {
  Post(&lister_, [this] { backing_->NoteProcesses(); });
}

void DeviceThread::Post(Lane* lane, Call call) {
  lane->posted.Put(std::move(call));
  eventfd_write(lane->wake.get(), 1);
}

std::vector<Completion> DeviceThread::Take() {
  // Reads the event first, so that anything put in from here on makes it
  // readable again.
  eventfd_t count;
  eventfd_read(ready_.get(), &count);
  std::deque<Completion> done = done_.TakeAll();
  return {std::make_move_iterator(done.begin()),
          std::make_move_iterator(done.end())};
}

void DeviceThread::Finish(std::vector<Completion> done) {
  if (done.empty()) return;
  for (Completion& one : done) done_.Put(std::move(one));
  eventfd_write(ready_.get(), 1);
}

DeviceThread::Call DeviceThread::Next(Lane* lane) {
  if (lane->calls.empty()) {
    const bool filling = lane == &driver_ && queue_.filling();
    pollfd wake = {lane->wake.get(), POLLIN, 0};
    ppoll(&wake, 1, filling ? &kFillPoll : nullptr, nullptr);
    // Reads the event first, so that anything posted from here on makes it
    // readable again.
    eventfd_t count;
    eventfd_read(lane->wake.get(), &count);
    lane->calls = lane->posted.TakeAll();
  }
  if (stopping() || lane->calls.empty()) return nullptr;
  Call call = std::move(lane->calls.front());
  lane->calls.pop_front();
  return call;
}

void DeviceThread::RunDriver() {
  backing_->EnterThread();
  for (bool lost = false; !lost;) {
    const Call call = Next(&driver_);
    if (stopping()) return;
    if (call != nullptr) call();
    std::vector<Completion> done = queue_.Take();
    lost = !done.empty() && absl::holds_alternative<Lost>(done.back());
    Finish(std::move(done));
  }
}

void DeviceThread::RunLister() {
  for (;;) {
    const Call call = Next(&lister_);
    if (stopping()) return;
    if (call != nullptr) call();
  }
}

}  // namespace fineserve::backing
