#include "daemon/proxy/page/feed.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "daemon/proxy/page/frame.h"
#include "daemon/proxy/page/gpu_watch.h"

namespace fineserve::proxy {

// Reads the tables on a thread of its own while Look is on, and gives each
// reading to `take` on the io_context's thread, one at a time: if that thread
// is late, the next reading waits for it. The connections to the daemons end
// with the last viewer.
class Feed::Sampler {
 public:
  Sampler(asio::io_context* io, std::string folder, const Clock* clock,
          std::function<void(std::string)> take)
      : io_(io),
        folder_(std::move(folder)),
        clock_(clock),
        take_(std::move(take)) {}
  ~Sampler() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  // Called on the io_context's thread. False if there is no thread to do it.
  bool Look(bool looks) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      looks_ = looks;
    }
    changed_.notify_one();
    if (!looks || thread_.joinable()) return true;
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

 private:
  void Run() {
    absl::optional<GpuWatch> watch;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!ends_) {
      if (!looks_) {
        watch.reset();
        changed_.wait(lock, [this] { return looks_ || ends_; });
        continue;
      }
      lock.unlock();
      if (!watch) watch.emplace(folder_, clock_);
      Give(GpuPart(watch->Look()));
      lock.lock();
      changed_.wait_for(lock, kPeriod, [this] { return ends_; });
      changed_.wait(lock, [this] { return !given_ || ends_; });
    }
  }

  void Give(std::string part) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      given_ = true;
    }
    asio::post(*io_, [this, part = std::move(part)] {
      take_(part);
      {
        const std::lock_guard<std::mutex> taken(mutex_);
        given_ = false;
      }
      changed_.notify_one();
    });
  }

  asio::io_context* const io_;
  const std::string folder_;
  const Clock* const clock_;
  const std::function<void(std::string)> take_;
  std::mutex mutex_;  // guards what follows, up to the thread
  std::condition_variable changed_;
  bool looks_ = false;
  bool given_ = false;  // and not yet taken
  bool ends_ = false;
  std::thread thread_;
};

Feed::Seat::Seat(Feed* feed) : feed_(feed) {}

Feed::Seat::~Seat() {
  feed_->seats_.erase(this);
  if (feed_->seats_.empty() && feed_->sampler_) feed_->sampler_->Look(false);
}

asio::awaitable<Feed::Event> Feed::Seat::Next() {
  for (;;) {
    if (left_) co_return nullptr;
    if (Event event = feed_->Unseen(seen_)) {
      seen_ = feed_->last_number_;
      co_return event;
    }
    co_await news_.Wait();
  }
}

void Feed::Seat::Leave() {
  left_ = true;
  news_.Set();
}

Feed::Feed(asio::io_context* io, std::string folder, const Clock* clock,
           std::function<std::string()> proxy_part)
    : proxy_part_(std::move(proxy_part)),
      sampler_(std::make_unique<Sampler>(
          io, std::move(folder), clock,
          [this](const std::string& part) { Took(part); })) {}

Feed::~Feed() = default;

void Feed::Stop() { sampler_.reset(); }

std::unique_ptr<Feed::Seat> Feed::TakeSeat() {
  if (seats_.size() >= kMostViewers || !sampler_) return nullptr;
  if (seats_.empty()) {
    // The last frame is old if there were no viewers since.
    last_frame_.clear();
    frame_event_ = beat_event_ = nullptr;
    if (!sampler_->Look(true)) return nullptr;
  }
  auto seat = std::unique_ptr<Seat>(new Seat(this));
  seats_.insert(seat.get());
  return seat;
}

void Feed::Took(const std::string& gpu_part) {
  if (seats_.empty()) return;
  std::string frame = Frame(gpu_part, proxy_part_());
  if (frame != last_frame_) {
    last_frame_ = std::move(frame);
    frame_number_ = ++last_number_;
    frame_event_ = std::make_shared<const std::string>(
        absl::StrCat("id: ", frame_number_, "\ndata: ", last_frame_, "\n\n"));
  } else if (++quiet_periods_ >= kPeriodsToBeat) {
    beat_number_ = ++last_number_;
    beat_event_ = std::make_shared<const std::string>(
        absl::StrCat("event: beat\ndata: ", beat_number_, "\n\n"));
  } else {
    return;
  }
  quiet_periods_ = 0;
  for (Seat* seat : seats_) seat->news_.Set();
}

Feed::Event Feed::Unseen(uint64_t seen) const {
  if (frame_event_ && frame_number_ > seen) return frame_event_;
  if (beat_event_ && beat_number_ > seen) return beat_event_;
  return nullptr;
}

}  // namespace fineserve::proxy
