#include "tests/gpu/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/types/optional.h"

namespace fineserve::gpu {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ToJson(const Case& c) {
  return {{"name", c.name},
          {"verdict", Word(c.verdict)},
          {"reason", c.reason},
          {"figures", c.figures}};
}

// Returns a check's verdict. A check that is only informative "differs" if it
// fails.
std::string VerdictOf(const Check& check, const Outcome& outcome) {
  const bool differs = outcome.verdict == Verdict::kFailed &&
                       check.weight == Weight::kInformative;
  return differs ? "differs" : Word(outcome.verdict);
}

OrderedJson ToJson(const Check& check, const Outcome& outcome) {
  OrderedJson cases = OrderedJson::array();
  for (const Case& c : outcome.cases) cases.push_back(ToJson(c));
  return {{"name", check.name},
          {"question", check.question},
          {"needed", check.weight == Weight::kNeeded},
          {"verdict", VerdictOf(check, outcome)},
          {"reason", outcome.reason},
          {"otherwise", check.otherwise},
          {"seconds", outcome.seconds},
          {"cases", cases}};
}

size_t Count(const Outcome& outcome, Verdict verdict) {
  return static_cast<size_t>(
      std::count_if(outcome.cases.begin(), outcome.cases.end(),
                    [verdict](const Case& c) { return c.verdict == verdict; }));
}

// One line, fit for a table's cell.
std::string Cell(std::string text) {
  return absl::StrReplaceAll(text, {{"\n", " "}, {"|", "\\|"}});
}

std::string Row(const Check& check, const Outcome& outcome) {
  return absl::StrFormat("| %s | %s | %s | %d | %d | %d | %.1f |\n", check.name,
                         Cell(check.question), VerdictOf(check, outcome),
                         Count(outcome, Verdict::kHeld),
                         Count(outcome, Verdict::kFailed),
                         Count(outcome, Verdict::kSkipped), outcome.seconds);
}

std::string Reasons(const Report& report, Verdict verdict,
                    absl::optional<Weight> weight = absl::nullopt) {
  std::string text;
  for (const auto& [check, outcome] : report.checks) {
    if (weight && check.weight != *weight) continue;
    if (outcome.verdict == verdict && !outcome.reason.empty()) {
      absl::StrAppend(&text, "- ", check.name, ": ", Cell(outcome.reason),
                      "\n");
    }
    for (const Case& c : outcome.cases) {
      if (c.verdict != verdict) continue;
      absl::StrAppend(&text, "- ", check.name, ", ", c.name, ": ",
                      Cell(c.reason), "\n");
    }
    if (verdict == Verdict::kFailed && outcome.verdict == verdict &&
        !check.otherwise.empty()) {
      absl::StrAppend(&text, "- ", check.name, ", then: ", check.otherwise,
                      "\n");
    }
  }
  return text.empty() ? "None.\n" : text;
}

std::string Figures(const Report& report) {
  std::string text = "| check | figure | value |\n|---|---|---|\n";
  for (const auto& [check, outcome] : report.checks) {
    for (const Case& c : outcome.cases) {
      for (const auto& [name, value] : c.figures) {
        absl::StrAppend(&text, "| ", check.name, " | ", name, " | ", value,
                        " |\n");
      }
    }
  }
  return text;
}

}  // namespace

bool AllHeld(const Report& report) {
  return std::none_of(report.checks.begin(), report.checks.end(),
                      [](const auto& c) {
                        return c.second.verdict == Verdict::kFailed &&
                               c.first.weight == Weight::kNeeded;
                      });
}

std::string Json(const Report& report) {
  const Machine& m = report.machine;
  OrderedJson json = {{"device", report.emulated ? "emulated" : "real"},
                      {"date", report.date},
                      {"gpu", m.gpu},
                      {"uuid", m.uuid},
                      {"driver", m.driver},
                      {"commit", m.commit},
                      {"system", m.system},
                      {"sandbox", m.sandbox},
                      {"modes", m.modes},
                      {"held", AllHeld(report)},
                      {"checks", OrderedJson::array()}};
  for (const auto& [check, outcome] : report.checks) {
    json["checks"].push_back(ToJson(check, outcome));
  }
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string Markdown(const Report& report) {
  const Machine& m = report.machine;
  std::string text =
      absl::StrCat("# gpu_check on ",
                   report.emulated ? "the emulated device" : m.gpu, "\n\n");
  if (report.emulated) {
    absl::StrAppend(&text,
                    "**Emulated**: the verdicts are about our code; the "
                    "figures say nothing about any GPU.\n\n");
  }
  absl::StrAppend(
      &text, "- GPU: ", m.gpu, " (", m.uuid, ")\n- driver: ", m.driver,
      "\n- commit: ", m.commit, "\n- system: ", m.system,
      "\n- sandbox: ", m.sandbox, "\n- modes: ", m.modes,
      "\n- date: ", report.date,
      "\n- result: ", AllHeld(report) ? "all that ran held" : "NOT all held",
      "\n\n| check | question | verdict | held | failed | skipped "
      "| s |\n|---|---|---|--:|--:|--:|--:|\n");
  for (const auto& [check, outcome] : report.checks) {
    text += Row(check, outcome);
  }
  absl::StrAppend(&text, "\n## Failed\n\n",
                  Reasons(report, Verdict::kFailed, Weight::kNeeded),
                  "\n## Different, but not needed\n\n",
                  Reasons(report, Verdict::kFailed, Weight::kInformative),
                  "\n## Skipped\n\n", Reasons(report, Verdict::kSkipped),
                  "\n## Figures\n\n", Figures(report));
  return text;
}

}  // namespace fineserve::gpu
