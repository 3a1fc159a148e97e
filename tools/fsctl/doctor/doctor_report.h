#ifndef TOOLS_FSCTL_DOCTOR_DOCTOR_REPORT_H_
#define TOOLS_FSCTL_DOCTOR_DOCTOR_REPORT_H_

#include <string>
#include <vector>

namespace fineserve::fsctl {

// One line of `fsctl doctor`.
struct Check {
  enum class Result { kOk, kSkipped, kWarn, kFail };

  Result result = Result::kOk;
  std::string name;
  std::string found;  // what was looked at and seen
  std::string fix;    // empty if ok
};

std::string DoctorText(const std::vector<Check>& checks, bool color);
std::string DoctorJson(const std::vector<Check>& checks);

// True if any check failed; warnings do not count.
bool AnyFailed(const std::vector<Check>& checks);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_DOCTOR_REPORT_H_
