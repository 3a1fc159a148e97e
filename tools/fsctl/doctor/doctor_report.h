#ifndef TOOLS_FSCTL_DOCTOR_DOCTOR_REPORT_H_
#define TOOLS_FSCTL_DOCTOR_DOCTOR_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// One line of `fsctl doctor`.
struct Check {
  enum class Result { kOk, kSkipped, kWarn, kFail };

  Result result = Result::kOk;
  std::string name;
  std::string found;  // what was checked and observed
  std::string fix;    // empty if ok
};

// The checks alone: a table, a list.
std::string ChecksText(const std::vector<Check>& checks, bool color);
nlohmann::ordered_json ChecksJson(const std::vector<Check>& checks);

// Output of `fsctl doctor`.
std::string DoctorText(const std::vector<Check>& checks, bool color);
std::string DoctorJson(const std::vector<Check>& checks);

// True if any check failed; warnings do not count.
bool AnyFailed(const std::vector<Check>& checks);

// Prints the checks and returns the exit code.
int PrintReport(const Globals& globals, const std::vector<Check>& checks);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_DOCTOR_REPORT_H_
