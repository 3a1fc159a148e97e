#ifndef TESTS_GPU_REPORT_H_
#define TESTS_GPU_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/check.h"
#include "tests/gpu/machine.h"
#include "tests/gpu/outcome.h"

namespace fineserve::gpu {

struct Report {
  bool emulated = true;
  std::string date;  // UTC, ISO 8601
  Machine machine;
  std::vector<std::pair<Check, Outcome>> checks;
};

bool AllHeld(const Report& report);  // what is needed, of what ran

// One object:
//   {"device": "real" | "emulated", "date", "gpu", "uuid", "driver", "commit",
//    "system", "sandbox", "held": bool,
//    "modes",
//    "checks": [{"name", "question", "needed": bool, "verdict": "held" |
//                "failed" | "differs" (it is not needed) | "skipped" (unknown),
//                "reason", "otherwise", "seconds",
//                "cases": [{"name", "verdict", "reason",
//                           "figures": {"create_us": "1.5", ...}}]}]}
std::string Json(const Report& report);

// Returns the report for people: a table of checks, then failures, skipped
// checks and every figure.
std::string Markdown(const Report& report);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_REPORT_H_
