#include "daemon/base/file_lock.h"

#include <sys/file.h>

#include <chrono>

#include "absl/time/clock.h"

namespace fineserve::base {

bool LockWithin(const driver::Descriptor& file, absl::Duration patience) {
  constexpr absl::Duration kPause = absl::Milliseconds(20);
  const auto deadline =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(patience);
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    absl::SleepFor(kPause);
  }
  return true;
}

}  // namespace fineserve::base
