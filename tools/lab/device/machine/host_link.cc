#include "tools/lab/device/machine/host_link.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs +
         static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

struct HostLink::Ends {
  std::atomic<uint64_t> to_device, to_host;
};

std::unique_ptr<HostLink> HostLink::Open(const StateFolder& folder, int device,
                                         uint64_t bytes_per_s) {
  const Descriptor file = folder.OpenFile(device, "link");
  if (!file.valid() || ftruncate(file.get(), sizeof(Ends)) != 0) return nullptr;
  void* const mapped = mmap(nullptr, sizeof(Ends), PROT_READ | PROT_WRITE,
                            MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  return std::unique_ptr<HostLink>(
      new HostLink(static_cast<Ends*>(mapped), bytes_per_s));
}

HostLink::~HostLink() { munmap(ends_, sizeof(Ends)); }

// Relaxed: the values are times, and order nothing.
uint64_t HostLink::Book(Way way, uint64_t bytes) {
  std::atomic<uint64_t>& end =
      way == Way::kToDevice ? ends_->to_device : ends_->to_host;
  const auto takes_ns = static_cast<uint64_t>(
      static_cast<double>(bytes) / static_cast<double>(bytes_per_s_) * 1e9);
  uint64_t former = end.load(std::memory_order_relaxed);
  uint64_t own;
  do {
    own = std::max(former, NowNs()) + takes_ns;
  } while (!end.compare_exchange_weak(former, own, std::memory_order_relaxed));
  return own;
}

void HostLink::WaitUntil(uint64_t ns) {
  const timespec until = {static_cast<time_t>(ns / kSecondNs),
                          static_cast<long>(ns % kSecondNs)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) ==
         EINTR) {
  }
}

}  // namespace fineserve::emucuda
