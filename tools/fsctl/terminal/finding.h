#ifndef TOOLS_FSCTL_TERMINAL_FINDING_H_
#define TOOLS_FSCTL_TERMINAL_FINDING_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

// One fact that an operator should know, as `fsctl doctor` checks it or `fsctl
// status` notices it.
struct Finding {
  // kNote: the finding may be intended, or may pass by itself.
  enum class Severity { kOk, kSkipped, kNote, kWrong };

  Severity severity = Severity::kOk;
  std::string name;  // the check's; empty: status noticed it
  std::string what;
  std::string cure;     // empty if all is well
  double since_s = -1;  // so long ago; negative: not known

  bool is_wrong() const { return severity == Severity::kWrong; }
  bool operator==(const Finding&) const = default;
};
using Findings = std::vector<Finding>;

// Makes a finding of `fsctl status`: wrong if `is_wrong`, otherwise a note.
Finding Trouble(bool is_wrong, std::string what, double since_s,
                std::string cure);

bool AnyWrong(const Findings& findings);

// Checks, as a table and as a list.
std::string ChecksText(const Findings& checks, bool color);
nlohmann::ordered_json ChecksJson(const Findings& checks);
// Formats troubles as text of two lines each, and as a list with the time at
// which each began.
std::string TroublesText(const Findings& troubles, bool color);
nlohmann::ordered_json TroublesJson(const Findings& troubles,
                                    const Moment& now);

// Output of `fsctl doctor`: the checks, and how many have failed.
std::string ReportText(const Findings& checks, bool color);
std::string ReportJson(const Findings& checks);
// Prints the report and returns the exit code. Notes do not count as failures.
int PrintReport(const Globals& globals, const Findings& checks);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_FINDING_H_
