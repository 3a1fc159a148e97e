#include "daemon/fineserved/eviction/replica_look.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <utility>

#include "daemon/base/quiet_thread.h"

namespace fineserve::server {

ReplicaLook::ReplicaLook(std::function<Sights()> see, const Clock* clock)
    : see_(std::move(see)),
      clock_(clock),
      ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ReplicaLook::~ReplicaLook() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stops_ = true;
  }
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

absl::optional<ReplicaLook::Sights> ReplicaLook::Recent() {
  eventfd_t count = 0;
  eventfd_read(ready_.get(), &count);
  if (!thread_.joinable()) thread_ = base::QuietThread([this] { Run(); });
  const std::lock_guard<std::mutex> lock(mutex_);
  if (looks_) return absl::nullopt;
  if (seen_ns_ != 0 && clock_->NowNs() - seen_ns_ <= kFreshNs) return seen_;
  looks_ = true;
  eventfd_write(wake_.get(), 1);
  return absl::nullopt;
}

void ReplicaLook::Run() {
  for (;;) {
    pollfd woken = {wake_.get(), POLLIN, 0};
    poll(&woken, 1, -1);
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stops_) return;
      if (!looks_) continue;
    }
    Sights seen = see_();
    const std::lock_guard<std::mutex> lock(mutex_);
    seen_ = std::move(seen);
    seen_ns_ = clock_->NowNs();
    looks_ = false;
    eventfd_write(ready_.get(), 1);
  }
}

}  // namespace fineserve::server
