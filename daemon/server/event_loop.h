#ifndef DAEMON_SERVER_EVENT_LOOP_H_
#define DAEMON_SERVER_EVENT_LOOP_H_

#include <systemd/sd-event.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace fineserve::server {

// One registration with the loop; ends when destroyed.
class EventSource {
 public:
  virtual ~EventSource() = default;
};

// An EventSource that calls back at one instant, as late as the loop is busy.
class EventAlarm : public EventSource {
 public:
  // µs of CLOCK_MONOTONIC, instead of what was set before; UINT64_MAX: never.
  virtual void Set(uint64_t at_us) = 0;
};

// The daemon's one thread waits here. A thin owner of libsystemd's event loop:
// callbacks run one at a time, on the thread that calls Run. A callback may
// destroy its own source. Not thread-safe.
class EventLoop {
 public:
  EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  // Calls back while `fd` is readable or its peer has hung up.
  std::unique_ptr<EventSource> OnReadable(int fd, std::function<void()> call);
  // Calls back when `signal` arrives; blocks it in this thread.
  std::unique_ptr<EventSource> OnSignal(int signal, std::function<void()> call);
  // Calls back every `period_us`, as late as the loop is busy.
  std::unique_ptr<EventSource> Every(uint64_t period_us,
                                     std::function<void()> call);

  // Calls back when it is set to; not set yet.
  std::unique_ptr<EventAlarm> OnAlarm(std::function<void()> call);

  // Calls back after every round in which something else called back.
  std::unique_ptr<EventSource> AfterEach(std::function<void()> call);

  // Runs until Stop.
  void Run();
  void Stop();
  // Handles one pending event without waiting; false if there was none.
  bool RunOnce();

 private:
  sd_event* loop_ = nullptr;
};

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_EVENT_LOOP_H_
