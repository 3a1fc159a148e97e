#ifndef TESTS_PROCESS_EVENTUALLY_H_
#define TESTS_PROCESS_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace fineserve::process {

// How long to wait for what must happen. It is long because a busy machine or a
// sanitizer may be slow.
inline constexpr std::chrono::seconds kPatience(120);

// Sleeps for a moment between two looks at a condition.
inline void Breathe() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// Evaluates `condition` until it holds or `limit` has passed. True if it held.
template <typename Condition>
bool BecomesTrue(Condition condition, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    Breathe();
  }
  return true;
}

template <typename Condition>
bool Eventually(Condition condition) {
  return BecomesTrue(condition, kPatience);
}

}  // namespace fineserve::process

#endif  // TESTS_PROCESS_EVENTUALLY_H_
