#ifndef TOOLS_FSCTL_TERMINAL_FABRICATED_MOMENT_H_
#define TOOLS_FSCTL_TERMINAL_FABRICATED_MOMENT_H_

#include <cstdint>

#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

// The time of all fabricated observations.
inline constexpr uint64_t kTestSecond = 1'000'000'000;
inline constexpr Moment kTestNow = {1000 * kTestSecond, 5000 * kTestSecond};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_FABRICATED_MOMENT_H_
