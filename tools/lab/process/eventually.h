#ifndef TOOLS_LAB_PROCESS_EVENTUALLY_H_
#define TOOLS_LAB_PROCESS_EVENTUALLY_H_

#include <algorithm>
#include <chrono>
#include <thread>

namespace fineserve::process {

// Limit on the wait for an event that must happen. It is long because a busy
// machine or a sanitizer may be slow.
inline constexpr std::chrono::seconds kPatience(120);

// Sleeps for a moment between two looks at a condition.
inline void Breathe() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// Evaluates `condition` until it holds or `limit` has passed. True if it held.
// A condition that starts a program is evaluated less often, so that it does
// not take the processor from what it observes.
template <typename Condition>
bool BecomesTrue(Condition condition, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLongestPause(100);
  const auto deadline = Clock::now() + limit;
  for (;;) {
    const auto began = Clock::now();
    if (condition()) return true;
    const auto ended = Clock::now();
    if (ended > deadline) return false;
    Breathe();
    std::this_thread::sleep_for(
        std::min<Clock::duration>(2 * (ended - began), kLongestPause));
  }
}

template <typename Condition>
bool Eventually(Condition condition) {
  return BecomesTrue(condition, kPatience);
}

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_EVENTUALLY_H_
