#ifndef DAEMON_PROXY_RECORD_RECORDER_H_
#define DAEMON_PROXY_RECORD_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/base/clock/clock.h"
#include "daemon/proxy/record/access_log.h"
#include "daemon/proxy/record/life.h"

namespace fineserve::proxy {

// Keeps the lives of requests: those under way, and the most recent of those
// that ended; passes each that ends to the access log and the tracer. Confined
// to the proxy's thread, so it takes no lock; the lives that it passes on are
// final.
class Recorder {
 public:
  // Keeps the `most_recent` lives. With 0, none is kept, and those under way
  // are not known either. `log` may be null; it must outlive this object.
  void Keep(size_t most_recent);
  void SetLog(AccessLog* log) { log_ = log; }
  using OnEnd = std::function<void(const std::shared_ptr<const Life>&)>;
  void SetOnEnd(OnEnd on_end) { on_end_ = std::move(on_end); }

  // True if lives are recorded at all.
  bool on() const { return !slots_.empty() || log_ != nullptr || on_end_; }
  bool keeps() const { return !slots_.empty(); }
  size_t most_recent() const { return slots_.size(); }
  AccessLog* log() const { return log_; }

  // Begins a life; null if lives are not recorded.
  std::shared_ptr<Life> Begin();
  void End(std::shared_ptr<Life> life);

  const std::vector<std::shared_ptr<Life>>& under_way() const { return live_; }
  // Returns all lives that are kept: those under way, then those that ended,
  // each group with the newest first.
  std::vector<std::shared_ptr<const Life>> Kept() const;
  // Ended lives are numbered from 0. Ended returns null if that life is
  // forgotten or has not ended.
  uint64_t ended() const { return ended_; }
  uint64_t oldest() const;
  std::shared_ptr<const Life> Ended(uint64_t number) const;

  // Returns the newest life, under way or ended, with this id, or with the only
  // id that begins with it. NotFound if it is unknown or forgotten;
  // InvalidArgument if several ids begin with it.
  absl::StatusOr<std::shared_ptr<const Life>> Find(absl::string_view id) const;

  // Calls `on_ended` after each life that ends, until Unfollow.
  using Follower = std::function<void()>;
  void Follow(Follower* on_ended) { followers_.insert(on_ended); }
  void Unfollow(Follower* on_ended) { followers_.erase(on_ended); }
  size_t followers() const { return followers_.size(); }

 private:
  std::vector<std::shared_ptr<const Life>> slots_;  // a ring, by number
  uint64_t ended_ = 0;
  std::vector<std::shared_ptr<Life>> live_;  // if it keeps
  AccessLog* log_ = nullptr;
  OnEnd on_end_;
  std::set<Follower*> followers_;
};

// The life of a request, which begins and ends with this object. Confined to
// the proxy's thread, like its recorder.
class Recording {
 public:
  // Both outlive it.
  Recording(Recorder* recorder, const Clock* clock)
      : recorder_(recorder), clock_(clock) {}
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // The life to write to until this object ends. Each request has one, because
  // bills and metrics are read from it as well; a life that is not recorded is
  // discarded.
  Life* life();
  // Begins a new one.
  void Begin();
  // True if the request is recorded.
  bool begun() const { return begun_; }

 private:
  Recorder* const recorder_;
  const Clock* const clock_;
  std::shared_ptr<Life> life_;  // null: nothing was written yet
  bool begun_ = false;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RECORD_RECORDER_H_
