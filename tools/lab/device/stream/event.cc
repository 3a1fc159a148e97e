#include "tools/lab/device/stream/event.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

namespace fineserve::emucuda {
namespace {

// Interval at which a waiter in another process polls, because it cannot be
// woken. Heuristic.
constexpr useconds_t kLookAgainUs = 200;

// The content of an event's IPC handle. The inode reveals a reused descriptor
// number.
struct EventName {
  static constexpr uint64_t kMagic = 0x746e657665756d65ull;  // "emuevent"
  uint64_t magic = 0;
  uint64_t inode = 0;
  int32_t pid = 0;
  int32_t fd = 0;
};
static_assert(sizeof(EventName) <= sizeof(driver::CUipcEventHandle));

uint64_t InodeOf(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

bool IsGone(uint32_t pid) {
  return kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

uint64_t MonotonicNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::Map(Descriptor file) {
  void* page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED,
                    file.get(), 0);
  if (page == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedEvent>(
      new SharedEvent(std::move(file), static_cast<Page*>(page)));
}

std::shared_ptr<SharedEvent> SharedEvent::Create() {
  Descriptor file(memfd_create("emucuda-event", MFD_CLOEXEC));
  if (!file.valid() || ftruncate(file.get(), sizeof(Page)) != 0) return nullptr;
  return Map(std::move(file));
}

std::shared_ptr<SharedEvent> SharedEvent::Import(
    const driver::CUipcEventHandle& handle) {
  EventName name;
  memcpy(static_cast<void*>(&name), &handle, sizeof(name));
  if (name.magic != EventName::kMagic) return nullptr;
  char path[48];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", name.pid, name.fd);
  Descriptor file(open(path, O_RDWR | O_CLOEXEC));
  if (!file.valid() || InodeOf(file.get()) != name.inode) return nullptr;
  return Map(std::move(file));
}

SharedEvent::~SharedEvent() { munmap(page_, sizeof(Page)); }

void SharedEvent::Export(driver::CUipcEventHandle* handle) const {
  const EventName name = {EventName::kMagic, InodeOf(file_.get()), getpid(),
                          file_.get()};
  memset(handle, 0, sizeof(*handle));
  memcpy(handle, &name, sizeof(name));
}

uint64_t SharedEvent::Record() {
  page_->recorder.store(static_cast<uint32_t>(getpid()),
                        std::memory_order_relaxed);
  // Release publishes the recorder; it pairs with the acquire in Latest.
  return page_->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
}

uint64_t SharedEvent::Latest() const {
  return page_->recorded.load(std::memory_order_acquire);
}

void SharedEvent::Finish(uint64_t recording) {
  uint64_t before = page_->finished.load(std::memory_order_relaxed);
  // Release: a process that sees the recording finished also sees what the
  // device did before it. Pairs with the acquire in Finished.
  while (before < recording && !page_->finished.compare_exchange_weak(
                                   before, recording, std::memory_order_release,
                                   std::memory_order_relaxed)) {
  }
}

bool SharedEvent::Finished(uint64_t recording) const {
  return page_->finished.load(std::memory_order_acquire) >= recording ||
         IsGone(page_->recorder.load(std::memory_order_relaxed));
}

void SharedEvent::Wait(uint64_t recording) const {
  while (!Finished(recording)) usleep(kLookAgainUs);
}

void Completion::Finish() {
  if (shared_ != nullptr) return shared_->Finish(recording_);
  const MutexLock lock(mutex_);
  finished_ns_ = MonotonicNs();
  changed_.NotifyAll();
}

void Completion::Wait() {
  if (shared_ != nullptr) return shared_->Wait(recording_);
  const MutexLock lock(mutex_);
  while (finished_ns_ == 0) changed_.Wait(mutex_);
}

bool Completion::finished() {
  if (shared_ != nullptr) return shared_->Finished(recording_);
  return finished_ns() != 0;
}

uint64_t Completion::finished_ns() {
  const MutexLock lock(mutex_);
  return finished_ns_;
}

std::shared_ptr<Completion> Event::Latest() const {
  if (shared_ != nullptr) {
    const uint64_t latest = shared_->Latest();
    if (latest == 0) return nullptr;
    return std::make_shared<Completion>(shared_, latest);
  }
  const MutexLock lock(mutex_);
  return latest_;
}

std::shared_ptr<Completion> Event::NewRecording() const {
  if (shared_ == nullptr) return std::make_shared<Completion>();
  return std::make_shared<Completion>(shared_, shared_->Record());
}

void Event::Record(std::shared_ptr<Completion> recording) {
  const MutexLock lock(mutex_);
  captured_ = nullptr;
  if (shared_ != nullptr) return;  // Latest asks the shared state
  latest_ = std::move(recording);
}

std::shared_ptr<const CapturedPoint> Event::captured() const {
  const MutexLock lock(mutex_);
  return captured_;
}

void Event::RecordCaptured(std::shared_ptr<const CapturedPoint> point) {
  const MutexLock lock(mutex_);
  captured_ = std::move(point);
}

}  // namespace fineserve::emucuda
