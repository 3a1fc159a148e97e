#include "tools/fsctl/doctor/doctor_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace fineserve::fsctl {
namespace {

using Result = Check::Result;

TEST(DoctorReportTest, TextIsTheGoldenOne) {
  const std::vector<Check> checks = {
      {Result::kOk, "memfd", "works", ""},
      {Result::kFail, "shim", "not found", "install it"},
      {Result::kSkipped, "MIG", "not checked", ""},
      {Result::kWarn, "MPS", "runs", "stop it"}};
  EXPECT_EQ(DoctorText(checks, false),
            "CHECK  RESULT  FOUND\n"
            "memfd  ok      works\n"
            "shim   FAIL    not found\n"
            "               fix: install it\n"
            "MIG    -       not checked\n"
            "MPS    warn    runs\n"
            "               fix: stop it\n"
            "\n"
            "1 problem, 1 warning\n");
  EXPECT_TRUE(AnyFailed(checks));
  const auto json = nlohmann::json::parse(DoctorJson(checks));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["checks"][1]["fix"], "install it");
}

TEST(DoctorReportTest, WarningsAloneAreNoFailure) {
  EXPECT_FALSE(AnyFailed({{Result::kWarn, "MPS", "runs", "stop it"}}));
}

}  // namespace
}  // namespace fineserve::fsctl
