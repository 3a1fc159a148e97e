#include "daemon/server/event_loop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include <utility>

namespace fineserve::server {
namespace {

// These calls fail only for lack of memory or descriptors, and without its loop
// the daemon cannot work.
void Require(int result, const char* what) {
  if (result >= 0) return;
  fprintf(stderr, "fineserved: %s: %s\n", what, strerror(-result));
  exit(1);
}

class Source final : public EventSource {
 public:
  explicit Source(std::function<void()> call) : call_(std::move(call)) {}
  ~Source() override {
    // A callback that destroys its own source runs on a copy: see Call.
    sd_event_source_set_enabled(source_, SD_EVENT_OFF);
    sd_event_source_unref(source_);
  }

  void Call() const {
    const std::function<void()> call = call_;
    call();
  }

  sd_event_source* source_ = nullptr;
  uint64_t period_us_ = 0;

 private:
  const std::function<void()> call_;
};

class Alarm final : public EventAlarm {
 public:
  explicit Alarm(std::function<void()> call) : source_(std::move(call)) {}

  void Set(uint64_t at_us) override {
    if (at_us == at_us_) return;
    at_us_ = at_us;
    sd_event_source_set_time(source_.source_, at_us);
    sd_event_source_set_enabled(
        source_.source_, at_us == UINT64_MAX ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
  }
  void Ring() {
    at_us_ = UINT64_MAX;
    source_.Call();
  }

  Source source_;

 private:
  uint64_t at_us_ = UINT64_MAX;
};

int OnAlarmTime(sd_event_source*, uint64_t, void* self) {
  static_cast<Alarm*>(self)->Ring();
  return 0;
}

int OnIo(sd_event_source*, int, uint32_t, void* self) {
  static_cast<Source*>(self)->Call();
  return 0;
}

int OnSignalArrived(sd_event_source*, const signalfd_siginfo*, void* self) {
  static_cast<Source*>(self)->Call();
  return 0;
}

int OnTime(sd_event_source* source, uint64_t, void* self) {
  auto* timer = static_cast<Source*>(self);
  // Armed before the call, because the call may destroy the source.
  sd_event_source_set_time_relative(source, timer->period_us_);
  sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
  timer->Call();
  return 0;
}

int OnRoundEnd(sd_event_source*, void* self) {
  static_cast<Source*>(self)->Call();
  return 0;
}

}  // namespace

EventLoop::EventLoop() { Require(sd_event_new(&loop_), "sd_event_new"); }

EventLoop::~EventLoop() { sd_event_unref(loop_); }

std::unique_ptr<EventSource> EventLoop::OnReadable(int fd,
                                                   std::function<void()> call) {
  auto source = std::make_unique<Source>(std::move(call));
  Require(
      sd_event_add_io(loop_, &source->source_, fd, EPOLLIN, OnIo, source.get()),
      "sd_event_add_io");
  return source;
}

std::unique_ptr<EventSource> EventLoop::OnSignal(int signal,
                                                 std::function<void()> call) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  auto source = std::make_unique<Source>(std::move(call));
  Require(sd_event_add_signal(loop_, &source->source_, signal, OnSignalArrived,
                              source.get()),
          "sd_event_add_signal");
  return source;
}

std::unique_ptr<EventSource> EventLoop::Every(uint64_t period_us,
                                              std::function<void()> call) {
  auto source = std::make_unique<Source>(std::move(call));
  source->period_us_ = period_us;
  Require(sd_event_add_time_relative(loop_, &source->source_, CLOCK_MONOTONIC,
                                     period_us, 1, OnTime, source.get()),
          "sd_event_add_time_relative");
  return source;
}

std::unique_ptr<EventAlarm> EventLoop::OnAlarm(std::function<void()> call) {
  auto alarm = std::make_unique<Alarm>(std::move(call));
  sd_event_source** source = &alarm->source_.source_;
  Require(sd_event_add_time(loop_, source, CLOCK_MONOTONIC, UINT64_MAX, 1,
                            OnAlarmTime, alarm.get()),
          "sd_event_add_time");
  Require(sd_event_source_set_enabled(*source, SD_EVENT_OFF),
          "sd_event_source_set_enabled");
  return alarm;
}

std::unique_ptr<EventSource> EventLoop::AfterEach(std::function<void()> call) {
  auto source = std::make_unique<Source>(std::move(call));
  Require(sd_event_add_post(loop_, &source->source_, OnRoundEnd, source.get()),
          "sd_event_add_post");
  return source;
}

void EventLoop::Run() { Require(sd_event_loop(loop_), "sd_event_loop"); }

bool EventLoop::RunOnce() {
  const int result = sd_event_run(loop_, 0);
  Require(result, "sd_event_run");
  return result > 0;
}

void EventLoop::Stop() { sd_event_exit(loop_, 0); }

}  // namespace fineserve::server
