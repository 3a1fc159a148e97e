#include "tests/gpu/outcome.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace fineserve::gpu {
namespace {

using Json = nlohmann::json;

// True for a field that GoogleTest itself writes; every other text is a
// property.
bool IsGoogleTests(const std::string& key) {
  static const auto& own = *new std::set<std::string>{
      "name",      "file",        "line", "status",   "result",
      "timestamp", "value_param", "time", "classname"};
  return own.count(key) != 0;
}

std::string Failures(const Json& test) {
  std::string text;
  for (const Json& failure : test.at("failures")) {
    if (!text.empty()) text += "\n";
    text += failure.at("failure").get<std::string>();
  }
  return text;
}

Case ReadCase(const Json& test) {
  Case c;
  c.name = test.at("classname").get<std::string>() + "." +
           test.at("name").get<std::string>();
  for (const auto& [key, value] : test.items()) {
    if (value.is_string() && !IsGoogleTests(key)) c.figures[key] = value;
  }
  if (const auto reason = c.figures.find("skip_reason");
      reason != c.figures.end()) {
    c.reason = reason->second;
    c.figures.erase(reason);
  }
  if (test.contains("failures")) {
    c.verdict = Verdict::kFailed;
    c.reason = Failures(test);
  } else if (test.at("result") == "SKIPPED") {
    c.verdict = Verdict::kSkipped;
  }
  return c;
}

}  // namespace

const char* Word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHeld:
      return "held";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kSkipped:
      return "skipped";
  }
  return "";
}

std::vector<Case> ReadCases(const std::string& path) {
  std::ifstream in(path);
  const Json report = Json::parse(in, nullptr, false);
  if (!report.is_object()) return {};
  std::vector<Case> cases;
  try {
    for (const Json& suite : report.at("testsuites")) {
      for (const Json& test : suite.at("testsuite")) {
        if (test.at("status") == "RUN") cases.push_back(ReadCase(test));
      }
    }
  } catch (const Json::exception&) {
    return {};
  }
  return cases;
}

Outcome Judge(std::vector<Case> cases, const std::string& complaint) {
  const auto any = [&cases](Verdict verdict) {
    return std::any_of(cases.begin(), cases.end(), [verdict](const Case& c) {
      return c.verdict == verdict;
    });
  };
  Outcome outcome;
  outcome.reason = complaint;
  if (any(Verdict::kFailed) || !complaint.empty()) {
    outcome.verdict = Verdict::kFailed;
  } else if (cases.empty()) {
    outcome.verdict = Verdict::kFailed;
    outcome.reason = "no test ran";
  } else if (!any(Verdict::kHeld)) {
    outcome.verdict = Verdict::kSkipped;
    outcome.reason = cases.front().reason;
  }
  outcome.cases = std::move(cases);
  return outcome;
}

}  // namespace fineserve::gpu
