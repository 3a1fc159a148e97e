#include "daemon/fineserved/server/event_loop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "daemon/base/errno_status.h"

namespace fineserve::server {
namespace {

// Ends the process if a call has failed. These calls fail only for lack of
// memory or descriptors, and without its loop the daemon cannot work.
void Require(int result, const char* what) {
  if (result >= 0) return;
  fprintf(stderr, "fineserved: %s\n", base::WithErrno(what, -result).c_str());
  exit(1);
}

uint64_t NowUs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 +
         static_cast<uint64_t>(now.tv_nsec) / 1'000;
}

class Source final : public EventAlarm {
 public:
  explicit Source(std::function<void()> call) : call_(std::move(call)) {}
  ~Source() override {
    // A callback that destroys its own source runs on a copy: see Call.
    sd_event_source_set_enabled(source_, SD_EVENT_OFF);
    sd_event_source_unref(source_);
  }

  void Set(uint64_t at_us) override {
    if (at_us == at_us_) return;
    at_us_ = at_us;
    sd_event_source_set_time(source_, at_us);
    sd_event_source_set_enabled(
        source_, at_us == UINT64_MAX ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
  }
  bool is_set() const override { return at_us_ != UINT64_MAX; }

  void Call() {
    at_us_ = UINT64_MAX;
    const std::function<void()> call = call_;
    call();
  }

  sd_event_source* source_ = nullptr;

 private:
  const std::function<void()> call_;
  uint64_t at_us_ = UINT64_MAX;
};

int Call(void* source) {
  static_cast<Source*>(source)->Call();
  return 0;
}

int OnIo(sd_event_source*, int, uint32_t, void* self) { return Call(self); }

int OnSignalArrived(sd_event_source*, const signalfd_siginfo*, void* self) {
  return Call(self);
}

int OnTime(sd_event_source*, uint64_t, void* self) { return Call(self); }

int OnRoundEnd(sd_event_source*, void* self) { return Call(self); }

}  // namespace

void BlockSignals(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

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
  BlockSignals({signal});
  auto source = std::make_unique<Source>(std::move(call));
  Require(sd_event_add_signal(loop_, &source->source_, signal, OnSignalArrived,
                              source.get()),
          "sd_event_add_signal");
  return source;
}

std::unique_ptr<EventAlarm> EventLoop::OnAlarm(std::function<void()> call) {
  auto alarm = std::make_unique<Source>(std::move(call));
  Require(sd_event_add_time(loop_, &alarm->source_, CLOCK_MONOTONIC, UINT64_MAX,
                            1, OnTime, alarm.get()),
          "sd_event_add_time");
  Require(sd_event_source_set_enabled(alarm->source_, SD_EVENT_OFF),
          "sd_event_source_set_enabled");
  return alarm;
}

std::unique_ptr<EventSource> EventLoop::AfterEach(std::function<void()> call) {
  auto source = std::make_unique<Source>(std::move(call));
  Require(sd_event_add_post(loop_, &source->source_, OnRoundEnd, source.get()),
          "sd_event_add_post");
  return source;
}

void EventLoop::Run() {
  while (sd_event_get_state(loop_) != SD_EVENT_FINISHED) Turn(UINT64_MAX);
}

bool EventLoop::RunOnce() { return Turn(0); }

// Does the same as sd_event_run, and measures the time that the event takes.
bool EventLoop::Turn(uint64_t timeout_us) {
  int pending = sd_event_prepare(loop_);
  Require(pending, "sd_event_prepare");
  if (pending == 0) pending = sd_event_wait(loop_, timeout_us);
  Require(pending, "sd_event_wait");
  if (pending == 0) return false;
  const uint64_t begun_us = NowUs();
  Require(sd_event_dispatch(loop_), "sd_event_dispatch");
  longest_turn_us_ = std::max(longest_turn_us_, NowUs() - begun_us);
  return true;
}

void EventLoop::Stop() { sd_event_exit(loop_, 0); }

}  // namespace fineserve::server
