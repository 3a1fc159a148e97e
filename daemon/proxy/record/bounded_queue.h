#ifndef DAEMON_PROXY_RECORD_BOUNDED_QUEUE_H_
#define DAEMON_PROXY_RECORD_BOUNDED_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace fineserve::proxy {

// A queue from threads that must not wait to one thread that may. An item that
// does not fit is dropped and counted. Any thread may push; one thread takes.
template <typename Item>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t most) : most_(most) {}

  // False if there is no room. Wakes the taker only if it waits for a first
  // item, so that a busy thread does not pay for a wake-up each time.
  bool Push(Item item) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (items_.size() >= most_ || closed_) {
      ++dropped_;
      return false;
    }
    items_.push_back(std::move(item));
    if (items_.size() == 1) changed_.notify_one();
    return true;
  }

  // Waits for an item, then up to `gather` for more, and takes them all.
  // Returns nothing once the queue is closed and empty, or after Nudge.
  std::vector<Item> Take(std::chrono::milliseconds gather) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock,
                  [this] { return !items_.empty() || closed_ || nudged_; });
    if (!closed_ && !nudged_ && gather.count() > 0) {
      changed_.wait_for(lock, gather, [this] { return closed_ || nudged_; });
    }
    nudged_ = false;
    return std::exchange(items_, {});
  }

  // Ends the present Take, or the next one, at once.
  void Nudge() {
    const std::lock_guard<std::mutex> lock(mutex_);
    nudged_ = true;
    changed_.notify_one();
  }

  // Drops everything that is pushed from now on.
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  bool closed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return closed_;
  }
  // Waits until the queue is closed, for at most `most`. Returns true if it was
  // closed.
  bool WaitForClose(std::chrono::milliseconds most) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, most, [this] { return closed_; });
  }

  uint64_t dropped() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return dropped_;
  }

 private:
  const size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<Item> items_;
  uint64_t dropped_ = 0;
  bool closed_ = false;
  bool nudged_ = false;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RECORD_BOUNDED_QUEUE_H_
