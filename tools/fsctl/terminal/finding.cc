#include "tools/fsctl/terminal/finding.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;
using Severity = Finding::Severity;

struct Look {
  const char* check;
  const char* trouble;
  Color color;
};

const Look& LookOf(const Finding& finding) {
  // In the order of Severity.
  static constexpr Look kLooks[] = {{"ok", "", Color::kGreen},
                                    {"-", "", Color::kDim},
                                    {"warn", "note  ", Color::kYellow},
                                    {"FAIL", "WRONG ", Color::kRed}};
  return kLooks[static_cast<size_t>(finding.severity)];
}

std::string Verdict(const Findings& checks) {
  const auto count = [&](Severity severity) {
    return std::count_if(checks.begin(), checks.end(), [&](const Finding& f) {
      return f.severity == severity;
    });
  };
  const auto failures = count(Severity::kWrong);
  const auto warnings = count(Severity::kNote);
  if (failures + warnings == 0) return "no problems found\n";
  return absl::StrCat(failures, failures == 1 ? " problem, " : " problems, ",
                      warnings, warnings == 1 ? " warning\n" : " warnings\n");
}

std::string Since(double seconds) {
  if (seconds < 0) return "";
  const uint64_t now_ns = 1ull << 62;
  return absl::StrCat(
      " (since ", Age(now_ns, now_ns - static_cast<uint64_t>(seconds * 1e9)),
      ")");
}

// As in logs.
std::string TimeText(const Moment& now, double seconds_ago) {
  return absl::FormatTime(
      "%Y-%m-%dT%H:%M:%E3SZ",
      absl::FromUnixNanos(static_cast<int64_t>(now.realtime_ns)) -
          absl::Seconds(seconds_ago),
      absl::UTCTimeZone());
}

}  // namespace

Finding Trouble(bool is_wrong, std::string what, double since_s,
                std::string cure) {
  return {is_wrong ? Severity::kWrong : Severity::kNote, "", std::move(what),
          std::move(cure), since_s};
}

bool AnyWrong(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.is_wrong(); });
}

std::string ChecksText(const Findings& checks, bool color) {
  TextTable table({"CHECK", "RESULT", "FOUND"});
  for (const Finding& check : checks) {
    const Look& look = LookOf(check);
    table.Add({check.name, {look.check, look.color}, check.what});
    if (!check.cure.empty()) table.Add({"", "", "fix: " + check.cure});
  }
  return table.Render(color);
}

Json ChecksJson(const Findings& checks) {
  Json list = Json::array();
  for (const Finding& check : checks) {
    list.push_back({{"name", check.name},
                    {"result", LookOf(check).check},
                    {"found", check.what},
                    {"fix", check.cure}});
  }
  return list;
}

std::string TroublesText(const Findings& troubles, bool color) {
  std::string text;
  for (const Finding& trouble : troubles) {
    const Look& look = LookOf(trouble);
    absl::StrAppend(&text, Paint(color, look.color, look.trouble), trouble.what,
                    Since(trouble.since_s), "\n      ",
                    Paint(color, Color::kDim, "→ " + trouble.cure), "\n");
  }
  return text;
}

Json TroublesJson(const Findings& troubles, const Moment& now) {
  Json list = Json::array();
  for (const Finding& trouble : troubles) {
    const bool is_known = trouble.since_s >= 0;
    list.push_back(
        {{"wrong", trouble.is_wrong()},
         {"what", trouble.what},
         {"since_s", is_known ? Json(trouble.since_s) : Json()},
         {"since", is_known ? Json(TimeText(now, trouble.since_s)) : Json()},
         {"cure", trouble.cure}});
  }
  return list;
}

std::string ReportText(const Findings& checks, bool color) {
  return absl::StrCat(ChecksText(checks, color), "\n", Verdict(checks));
}

std::string ReportJson(const Findings& checks) {
  return JsonText({{"ok", !AnyWrong(checks)}, {"checks", ChecksJson(checks)}});
}

int PrintReport(const Globals& globals, const Findings& checks) {
  Print(globals.json ? ReportJson(checks) : ReportText(checks, globals.color));
  return AnyWrong(checks) ? kExitBadAnswer : kExitOk;
}

}  // namespace fineserve::fsctl
