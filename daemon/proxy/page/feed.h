#ifndef DAEMON_PROXY_PAGE_FEED_H_
#define DAEMON_PROXY_PAGE_FEED_H_

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>

#include "daemon/base/clock/clock.h"
#include "daemon/base/http/socket_io.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

// The stream that all viewers of the page get: server-sent events, of which
// each is made once. A thread of its own reads the slab tables, so that a
// stopped daemon holds up no request: at each moment of the pools' history and,
// if there are viewers, every kPeriod for a frame, to which the proxy's thread
// adds its own facts. A frame that equals the one before is not sent; a beat
// goes out if nothing else did, so that both ends notice when the other has
// gone. A new viewer gets a frame, then the history, and the whole history
// again with each of its moments.
//
// A viewer that is slow gets the newest frame when it can take one, and misses
// those between. Confined to the proxy's thread, but for the sampler within.
class Feed {
 public:
  static constexpr std::chrono::milliseconds kPeriod{250};
  static constexpr int kPeriodsToBeat = 20;
  static constexpr size_t kMostViewers = 16;

  using Event = std::shared_ptr<const std::string>;

  // `folder` contains fineserved's sockets. `proxy_part` is called on the
  // proxy's thread; it and the pointers must outlive Stop.
  Feed(boost::asio::io_context* io, std::string folder, const Clock* clock,
       std::function<std::string()> proxy_part);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  // One viewer's place. Feed must outlive it.
  class Seat {
   public:
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    // Waits for and returns the newest event that this viewer has not had. Null
    // after Leave.
    boost::asio::awaitable<Event> Next();
    // Ends the present Next and all that follow.
    void Leave();

   private:
    friend class Feed;
    explicit Seat(Feed* feed);

    Feed* const feed_;
    uint64_t seen_ = 0;
    uint64_t seen_history_ = 0;
    bool left_ = false;
    Wakeup news_;
  };

  // Null if all seats are taken.
  std::unique_ptr<Seat> TakeSeat();
  size_t viewers() const { return seats_.size(); }

  // Ends the sampler; must be called before the io_context is destroyed.
  void Stop();

 private:
  class Sampler;
  // One look at the slab tables.
  struct Reading {
    std::string gpu_part;
    std::string history;  // empty: it has no new moment
  };

  void Took(const Reading& reading);
  // Returns false if there is nothing to send.
  bool TookFrame(const std::string& gpu_part);
  // Null if there is none.
  Event NextFor(Seat* seat) const;

  const std::function<std::string()> proxy_part_;
  std::unordered_set<Seat*> seats_;
  std::string last_frame_;
  Event frame_event_;  // of last_frame_
  Event beat_event_;
  Event history_event_;
  uint64_t frame_number_ = 0;  // when each was sent: events are numbered
  uint64_t beat_number_ = 0;
  uint64_t history_number_ = 0;
  uint64_t last_number_ = 0;
  int quiet_periods_ = 0;
  std::unique_ptr<Sampler> sampler_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PAGE_FEED_H_
