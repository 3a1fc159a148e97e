#include "tools/fsctl/terminal/finding.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace fineserve::fsctl {
namespace {

using Severity = Finding::Severity;

TEST(FindingTest, TextIsTheGoldenOne) {
  const Findings checks = {
      {Severity::kOk, "memfd", "works", ""},
      {Severity::kWrong, "shim", "not found", "install it"},
      {Severity::kSkipped, "MIG", "not checked", ""},
      {Severity::kNote, "MPS", "runs", "stop it"}};
  EXPECT_EQ(ReportText(checks, false),
            "CHECK  RESULT  FOUND\n"
            "memfd  ok      works\n"
            "shim   FAIL    not found\n"
            "               fix: install it\n"
            "MIG    -       not checked\n"
            "MPS    warn    runs\n"
            "               fix: stop it\n"
            "\n"
            "1 problem, 1 warning\n");
  EXPECT_TRUE(AnyWrong(checks));
  const auto json = nlohmann::json::parse(ReportJson(checks));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["checks"][1]["fix"], "install it");
}

TEST(FindingTest, WarningsAloneAreNoFailure) {
  EXPECT_FALSE(AnyWrong({{Severity::kNote, "MPS", "runs", "stop it"}}));
}

}  // namespace
}  // namespace fineserve::fsctl
