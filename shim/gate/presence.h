#ifndef SHIM_GATE_PRESENCE_H_
#define SHIM_GATE_PRESENCE_H_

#include <atomic>
#include <cstdint>

#include "shim/host/checked_descriptor.h"

namespace fineserve::shim {

// Agreement on whether this process is on the GPU, between the mover and
// whatever runs the engine's block pool, which alone knows that no block is in
// use (design note 0039):
//
//   kHere    ─ Ask (mover) ───────────────► kAsked
//   kAsked   ─ BeginLeaving (block pool) ─► kLeaving, or kHere: took too long
//   kLeaving ─ Leave (block pool) ────────► kAway, or kHere: it cannot
//   kAway    ─ Return (mover) ────────────► kHere
//
// A rank of an engine on several GPUs is not asked: the process that runs the
// block pool is, and then has each rank go from kHere to kLeaving.
//
// Any thread that needs memory that is away asks for it by the bell.
//
// Thread-safe, for one mover and one block pool. Constant-initialised,
// trivially destroyed.
class Presence {
 public:
  enum class State : uint32_t { kHere, kAsked, kLeaving, kAway };

  constexpr Presence() = default;

  // Acquire: a thread that sees the process here also sees what was mapped
  // before.
  State state() const {
    return static_cast<State>(state_.load(std::memory_order_acquire));
  }

  // For the mover. AwaitLeave returns true once the process is away. It returns
  // false, with the process here, if the block pool cannot leave or does not
  // begin to leave within `timeout_ms`.
  void Ask();
  bool AwaitLeave(uint64_t timeout_ms);
  // For a rank: returns true once it is away; false after the timeout.
  bool AwaitLeaveAsRank(uint64_t timeout_ms);
  void Return() { Change(State::kAway, State::kHere); }

  // For the thread that wakes the block pool: true once after each Ask, even if
  // no thread waited at that moment.
  bool TakeAsk() {
    return state() == State::kAsked &&
           is_new_ask_.exchange(false, std::memory_order_relaxed);
  }

  // For the block pool. BeginLeaving returns false if the pool was not asked to
  // leave.
  bool BeginLeaving() { return Change(State::kAsked, State::kLeaving); }
  bool BeginLeavingAsRank() { return Change(State::kHere, State::kLeaving); }
  void Leave(bool could) {
    Change(State::kLeaving, could ? State::kAway : State::kHere);
  }

  // True if the process is away, or if another of its threads is leaving.
  static bool IsAway(State state) {
    return state == State::kLeaving || state == State::kAway;
  }
  // Returns true once the process is not away; false after the timeout.
  bool WaitWhileAway(uint64_t timeout_ms);

  // Any thread: asks for the memory that is away. Does nothing without a mover.
  void Ring();
  // For the mover: the end of a pipe that is readable once the bell has rung;
  // -1 if there is no pipe. OpenBell makes the pipe if there is none or the
  // program has closed it. AnswerBell empties it.
  bool OpenBell();
  int bell() const { return bell_.Get(); }
  void AnswerBell();

  // For a forked child, which has no mover.
  void RestartInChild();

 private:
  bool Change(State from, State to);
  // Waits until the state has changed, or until that time of CLOCK_MONOTONIC.
  // May return early.
  void SleepWhile(State state, uint64_t until_ms);

  std::atomic<uint32_t> state_{0};  // a State; a futex
  // Relaxed: the store to the state publishes it.
  std::atomic<bool> is_new_ask_{false};
  CheckedDescriptor rope_;  // the pipe's other end
  CheckedDescriptor bell_;
};

// This process's presence.
extern constinit Presence g_presence;

}  // namespace fineserve::shim

#endif  // SHIM_GATE_PRESENCE_H_
