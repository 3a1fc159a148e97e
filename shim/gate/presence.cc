#include "shim/gate/presence.h"

#include <fcntl.h>
#include <unistd.h>

#include "shim/host/private_futex.h"
#include "shim/link/seqpacket.h"

namespace fineserve::shim {

constinit Presence g_presence;

bool Presence::Change(State from, State to) {
  auto expected = static_cast<uint32_t>(from);
  // Release: publishes what the process mapped or unmapped before this change.
  if (!state_.compare_exchange_strong(expected, static_cast<uint32_t>(to),
                                      std::memory_order_acq_rel)) {
    return false;
  }
  WakeSleepers(state_);
  return true;
}

void Presence::SleepWhile(State state, uint64_t until_ms) {
  SleepWhileEqual(state_, static_cast<uint32_t>(state), until_ms);
}

void Presence::Ask() {
  is_new_ask_.store(true, std::memory_order_relaxed);
  Change(State::kHere, State::kAsked);
}

bool Presence::AwaitLeave(uint64_t timeout_ms) {
  const uint64_t until_ms = NowMs() + timeout_ms;
  for (;;) {
    switch (state()) {
      case State::kHere:
        return false;
      case State::kAway:
        return true;
      case State::kLeaving:  // it waits for the device
        SleepWhile(State::kLeaving, NowMs() + 1000);
        break;
      case State::kAsked:
        if (NowMs() >= until_ms) {
          Change(State::kAsked, State::kHere);
        } else {
          SleepWhile(State::kAsked, until_ms);
        }
    }
  }
}

bool Presence::AwaitLeaveAsRank(uint64_t timeout_ms) {
  const uint64_t until_ms = NowMs() + timeout_ms;
  for (State now = state(); now != State::kAway; now = state()) {
    if (NowMs() >= until_ms) return false;
    SleepWhile(now, until_ms);
  }
  return true;
}

bool Presence::WaitWhileAway(uint64_t timeout_ms) {
  const uint64_t until_ms = NowMs() + timeout_ms;
  for (State now = state(); IsAway(now); now = state()) {
    if (NowMs() >= until_ms) return false;
    SleepWhile(now, until_ms);
  }
  return true;
}

bool Presence::OpenBell() {
  if (bell_.Get() >= 0 && rope_.Get() >= 0) return true;
  bell_.Close();
  rope_.Close();
  int ends[2];
  // A pipe, not an eventfd: all eventfds share one inode, so CheckedDescriptor
  // could not tell them apart.
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  bell_.Adopt(ends[0]);
  rope_.Adopt(ends[1]);
  return true;
}

void Presence::Ring() {
  const int fd = rope_.Get();
  if (fd < 0) return;
  // A full pipe has rung already.
  [[maybe_unused]] const ssize_t written = write(fd, "", 1);
}

void Presence::AnswerBell() {
  const int fd = bell_.Get();
  char rings[256];
  while (fd >= 0 && read(fd, rings, sizeof(rings)) == sizeof(rings)) {
  }
}

void Presence::RestartInChild() {
  rope_.Close();
  bell_.Close();
  state_.store(0, std::memory_order_relaxed);
}

}  // namespace fineserve::shim
