#include "tools/fsctl/doctor/doctor_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

struct Look {
  const char* word;
  Color color;
};

const Look& LookOf(Check::Result result) {
  // In the order of Result.
  static constexpr Look kLooks[] = {{"ok", Color::kGreen},
                                    {"-", Color::kDim},
                                    {"warn", Color::kYellow},
                                    {"FAIL", Color::kRed}};
  return kLooks[static_cast<size_t>(result)];
}

std::string Verdict(const std::vector<Check>& checks) {
  const auto count = [&](Check::Result result) {
    return std::count_if(checks.begin(), checks.end(),
                         [&](const Check& c) { return c.result == result; });
  };
  const auto failures = count(Check::Result::kFail);
  const auto warnings = count(Check::Result::kWarn);
  if (failures + warnings == 0) return "no problems found\n";
  return absl::StrCat(failures, failures == 1 ? " problem, " : " problems, ",
                      warnings, warnings == 1 ? " warning\n" : " warnings\n");
}

}  // namespace

bool AnyFailed(const std::vector<Check>& checks) {
  return std::any_of(checks.begin(), checks.end(), [](const Check& c) {
    return c.result == Check::Result::kFail;
  });
}

std::string ChecksText(const std::vector<Check>& checks, bool color) {
  TextTable table({"CHECK", "RESULT", "FOUND"});
  for (const Check& check : checks) {
    const Look look = LookOf(check.result);
    table.Add({check.name, {look.word, look.color}, check.found});
    if (!check.fix.empty()) table.Add({"", "", "fix: " + check.fix});
  }
  return table.Render(color);
}

std::string DoctorText(const std::vector<Check>& checks, bool color) {
  return absl::StrCat(ChecksText(checks, color), "\n", Verdict(checks));
}

Json ChecksJson(const std::vector<Check>& checks) {
  Json list = Json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"result", LookOf(check.result).word},
                    {"found", check.found},
                    {"fix", check.fix}});
  }
  return list;
}

std::string DoctorJson(const std::vector<Check>& checks) {
  const Json out = {{"ok", !AnyFailed(checks)}, {"checks", ChecksJson(checks)}};
  return JsonText(out);
}

int PrintReport(const Globals& globals, const std::vector<Check>& checks) {
  Print(globals.json ? DoctorJson(checks) : DoctorText(checks, globals.color));
  return AnyFailed(checks) ? kExitBadAnswer : kExitOk;
}

}  // namespace fineserve::fsctl
