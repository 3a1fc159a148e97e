#ifndef TESTS_GPU_CHECK_H_
#define TESTS_GPU_CHECK_H_

#include <string>
#include <vector>

#include "tests/gpu/command.h"
#include "tests/gpu/outcome.h"

namespace fineserve::gpu {

// The user's options, and the folders of our programs.
struct Plan {
  bool emulated = true;
  bool allow_mps = false;
  std::string prefix;    // holds bin/, lib/, share/
  std::string folder;    // for this run's files; private, removed afterwards
  bool vllm = false;     // run stock vLLM too
  unsigned limit_s = 0;  // on each check; 0: its own
};

// Limit on a check of a real GPU, so that a GPU that is lent by the half hour
// is not spent on a check that hangs. Stock vLLM, which runs only on request,
// has more.
inline constexpr unsigned kCheckLimitS = 60;
// Limit on a check in which every program loads PyTorch.
inline constexpr unsigned kLongCheckLimitS = 240;

// The consequence of a failed check.
enum class Weight {
  kNeeded,       // FineServe does not work there, or not as it says
  kInformative,  // it does, in another way or at another cost
};

// One question to the device, answered by a test program of ours.
struct Check {
  std::string name;      // for --only
  std::string question;  // for the report
  Command command;       // writes its cases to CasesFile
  std::string skipped;   // why it is not run; empty: it is
  Weight weight = Weight::kNeeded;
  std::string otherwise =
      {};  // consequence if it does not hold, and what to try
};

std::string CasesFile(const Plan& plan, const std::string& check);
std::string LogFile(const Plan& plan, const std::string& check);

// Returns all checks in the order in which they run: first those that show
// within minutes whether FineServe can work on this device at all, then those
// of its costs, then the long ones.
std::vector<Check> Checks(const Plan& plan);

// Runs a check to its end.
Outcome Perform(const Plan& plan, const Check& check);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_CHECK_H_
