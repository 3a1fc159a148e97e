#include "daemon/proxy/page/feed.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "daemon/proxy/page/frame.h"
#include "daemon/proxy/page/gpu_watch.h"
#include "daemon/proxy/page/pool_history.h"

namespace fineserve::proxy {

// Reads the tables on a separate thread and gives each reading to `take` on the
// io_context's thread, one at a time: if that thread is late, the next reading
// waits for it. The connections to the daemons stay open while Look is on, else
// only for one reading.
class Feed::Sampler {
 public:
  Sampler(asio::io_context* io, std::string folder, const Clock* clock,
          std::function<void(const Reading&)> take)
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

  // If `looks` is true, reads every kPeriod; if false, only for the history.
  // Called on the io_context's thread. Returns false if there is no thread to
  // read.
  bool Look(bool looks) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      looks_ = looks;
    }
    changed_.notify_one();
    if (thread_.joinable()) return true;
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
      const bool looks = looks_;
      lock.unlock();
      if (!watch) watch.emplace(folder_, clock_);
      Give(Read(&*watch));
      if (!looks) watch.reset();
      lock.lock();
      changed_.wait_for(lock, looks ? kPeriod : UntilMoment(),
                        [&] { return ends_ || looks_ != looks; });
      changed_.wait(lock, [this] { return !given_ || ends_; });
    }
  }

  Reading Read(GpuWatch* watch) {
    const std::vector<GpuSight> sights = watch->Look();
    const uint64_t now_ns = clock_->NowNs();
    if (now_ns < history_.due_ns()) return {GpuPart(sights), ""};
    history_.Add(now_ns, sights);
    const int64_t zero_ms = absl::ToUnixMillis(absl::Now()) -
                            static_cast<int64_t>(now_ns / 1'000'000);
    return {GpuPart(sights), history_.Text(zero_ms)};
  }

  std::chrono::milliseconds UntilMoment() const {
    const uint64_t now_ns = clock_->NowNs(), due_ns = history_.due_ns();
    return std::chrono::milliseconds(
        due_ns < now_ns ? 0 : (due_ns - now_ns) / 1'000'000 + 1);
  }

  void Give(Reading reading) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      given_ = true;
    }
    asio::post(*io_, [this, reading = std::move(reading)] {
      take_(reading);
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
  const std::function<void(const Reading&)> take_;
  PoolHistory history_;  // the thread's
  std::mutex mutex_;     // guards what follows, up to the thread
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
    if (Event event = feed_->NextFor(this)) co_return event;
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
          [this](const Reading& reading) { Took(reading); })) {
  sampler_->Look(false);
}

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

void Feed::Took(const Reading& reading) {
  bool says = !reading.history.empty();
  if (says) {
    history_number_ = ++last_number_;
    history_event_ = std::make_shared<const std::string>(
        absl::StrCat("event: history\ndata: ", reading.history, "\n\n"));
  }
  if (!seats_.empty() && TookFrame(reading.gpu_part)) says = true;
  if (!says) return;
  quiet_periods_ = 0;
  for (Seat* seat : seats_) seat->news_.Set();
}

bool Feed::TookFrame(const std::string& gpu_part) {
  std::string frame = Frame(gpu_part, proxy_part_());
  if (frame != last_frame_) {
    last_frame_ = std::move(frame);
    frame_number_ = ++last_number_;
    frame_event_ = std::make_shared<const std::string>(
        absl::StrCat("id: ", frame_number_, "\ndata: ", last_frame_, "\n\n"));
    return true;
  }
  if (++quiet_periods_ < kPeriodsToBeat) return false;
  beat_number_ = ++last_number_;
  beat_event_ = std::make_shared<const std::string>(
      absl::StrCat("event: beat\ndata: ", beat_number_, "\n\n"));
  return true;
}

// After the first frame the history goes first, because a slow viewer always
// has a newer frame to come.
Feed::Event Feed::NextFor(Seat* seat) const {
  if (seat->seen_ != 0 && history_number_ > seat->seen_history_) {
    seat->seen_history_ = history_number_;
    return history_event_;
  }
  Event event;
  if (frame_event_ && frame_number_ > seat->seen_) {
    event = frame_event_;
  } else if (beat_event_ && beat_number_ > seat->seen_) {
    event = beat_event_;
  }
  if (event) seat->seen_ = last_number_;
  return event;
}

}  // namespace fineserve::proxy
