#ifndef TESTS_GPU_CHECK_H_
#define TESTS_GPU_CHECK_H_

#include <string>
#include <vector>

#include "tests/gpu/command.h"
#include "tests/gpu/outcome.h"

namespace fineserve::gpu {

// What the user wants and where our programs lie.
struct Plan {
  bool emulated = true;
  bool allow_mps = false;
  std::string prefix;  // holds bin/, lib/, share/
  std::string folder;  // for this run's files; private, removed afterwards
  bool vllm = false;   // run stock vLLM too
};

// One question to the device, answered by a test program of ours.
struct Check {
  std::string name;      // for --only
  std::string question;  // for the report
  Command command;       // writes its cases to CasesFile
  std::string skipped;   // why it is not run; empty: it is
};

std::string CasesFile(const Plan& plan, const std::string& check);
std::string LogFile(const Plan& plan, const std::string& check);

// All of them, in the order in which they run: export first, since everything
// needs it, then conformance, then the unproven facts in their order.
std::vector<Check> Checks(const Plan& plan);

// Runs a check to its end.
Outcome Perform(const Plan& plan, const Check& check);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_CHECK_H_
