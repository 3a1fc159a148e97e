#ifndef DAEMON_FINESERVED_SERVER_EVENT_LOOP_H_
#define DAEMON_FINESERVED_SERVER_EVENT_LOOP_H_

#include <systemd/sd-event.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>

namespace fineserve::server {

// One registration with the loop. Destroying it ends it.
class EventSource {
 public:
  virtual ~EventSource() = default;
};

// An EventSource that calls back once at a given time, later if the loop is
// busy.
class EventAlarm : public EventSource {
 public:
  // Replaces the time that was set before: µs of CLOCK_MONOTONIC, or UINT64_MAX
  // for never.
  virtual void Set(uint64_t at_us) = 0;
  // False once it has called back.
  virtual bool is_set() const = 0;
};

// Blocks `signals` in this thread and in the threads that it starts from here
// on. A signal goes to any thread of the process that does not block it, and
// would end the process there. Call this before a library starts threads, as a
// CUDA driver does.
void BlockSignals(std::initializer_list<int> signals);

// The event loop of the daemon's only thread; a thin wrapper around
// libsystemd's. Callbacks run one at a time, on the thread that calls Run. A
// callback may destroy its own source. Not thread-safe.
class EventLoop {
 public:
  EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  // Calls back while `fd` is readable or its peer has hung up.
  std::unique_ptr<EventSource> OnReadable(int fd, std::function<void()> call);
  // Calls back when `signal` arrives; blocks it in this thread, which is too
  // late if there are others (BlockSignals).
  std::unique_ptr<EventSource> OnSignal(int signal, std::function<void()> call);
  // Calls back at the time that is set in the alarm; initially none is set.
  std::unique_ptr<EventAlarm> OnAlarm(std::function<void()> call);

  // Calls back after every round in which something else called back.
  std::unique_ptr<EventSource> AfterEach(std::function<void()> call);

  // Runs until Stop.
  void Run();
  void Stop();
  // Handles one pending event without waiting; false if there was none.
  bool RunOnce();

  // Returns the longest time of one event so far, during which all other events
  // waited.
  uint64_t longest_turn_us() const { return longest_turn_us_; }

 private:
  // Waits up to `timeout_us` for an event and handles it; false if none came.
  bool Turn(uint64_t timeout_us);

  sd_event* loop_ = nullptr;
  uint64_t longest_turn_us_ = 0;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_EVENT_LOOP_H_
