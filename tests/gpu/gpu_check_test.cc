// Tests how gpu_check judges the answers of its test programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/gpu/check.h"
#include "tests/gpu/command.h"
#include "tests/gpu/machine.h"
#include "tests/gpu/outcome.h"
#include "tests/gpu/report.h"

namespace fineserve::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class GpuCheckTest : public ::testing::Test {
 protected:
  GpuCheckTest() {
    if (mkdtemp(folder_.data()) == nullptr) abort();
  }
  ~GpuCheckTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name) const {
    return folder_ + "/" + name;
  }
  std::vector<Case> CasesIn(const std::string& text) const {
    std::ofstream(File("cases.json")) << text;
    return ReadCases(File("cases.json"));
  }

 private:
  std::string folder_ = "/tmp/gpu_check_test-XXXXXX";
};

// As GoogleTest 1.12 writes it.
constexpr char kThreeCases[] = R"({"name": "AllTests", "testsuites": [
  {"name": "A", "testsuite": [
    {"name": "x", "file": "a.cc", "line": 1, "status": "RUN",
     "result": "COMPLETED", "time": "0s", "classname": "A",
     "create_us": "1.5"},
    {"name": "y", "status": "RUN", "result": "SKIPPED", "classname": "A",
     "skip_reason": "no MPS"},
    {"name": "z", "status": "RUN", "result": "COMPLETED", "classname": "A",
     "failures": [{"failure": "one"}, {"failure": "two"}]},
    {"name": "filtered", "status": "NOTRUN", "result": "SUPPRESSED",
     "classname": "A"}]}]})";

TEST_F(GpuCheckTest, CasesCarryVerdictReasonAndFigures) {
  const std::vector<Case> cases = CasesIn(kThreeCases);
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0].name, "A.x");
  EXPECT_EQ(cases[0].verdict, Verdict::kHeld);
  EXPECT_THAT(cases[0].figures, ElementsAre(Pair("create_us", "1.5")));
  EXPECT_EQ(cases[1].verdict, Verdict::kSkipped);
  EXPECT_EQ(cases[1].reason, "no MPS");
  EXPECT_EQ(cases[2].verdict, Verdict::kFailed);
  EXPECT_EQ(cases[2].reason, "one\ntwo");
}

TEST_F(GpuCheckTest, OtherTextHasNoCases) {
  for (const char* text : {"", "{", "[]", "{\"testsuites\": 3}",
                           "{\"testsuites\": [{\"testsuite\": [{}]}]}"}) {
    EXPECT_THAT(CasesIn(text), IsEmpty()) << text;
  }
  EXPECT_THAT(ReadCases(File("absent")), IsEmpty());
}

TEST_F(GpuCheckTest, OneFailedCaseFailsTheCheck) {
  EXPECT_EQ(Judge(CasesIn(kThreeCases), "").verdict, Verdict::kFailed);
}

TEST_F(GpuCheckTest, ProgramThatDiedFailsTheCheckWhateverItSaidBefore) {
  const Outcome outcome = Judge({{"A.x", Verdict::kHeld, "", {}}}, "died");
  EXPECT_EQ(outcome.verdict, Verdict::kFailed);
  EXPECT_EQ(outcome.reason, "died");
}

TEST_F(GpuCheckTest, CheckWithoutCasesFails) {
  EXPECT_EQ(Judge({}, "").verdict, Verdict::kFailed);
}

TEST_F(GpuCheckTest, CheckOfSkippedCasesIsSkippedWithTheirReason) {
  const Outcome outcome = Judge({{"A.x", Verdict::kSkipped, "why", {}}}, "");
  EXPECT_EQ(outcome.verdict, Verdict::kSkipped);
  EXPECT_EQ(outcome.reason, "why");
}

TEST_F(GpuCheckTest, CommandTellsHowItEnded) {
  EXPECT_EQ(RunToEnd({{"true"}, {}, 60}, File("log")), "");
  EXPECT_EQ(RunToEnd({{"sh", "-c", "exit 3"}, {}, 60}, File("log")),
            "ended with 3");
  EXPECT_EQ(RunToEnd({{"sh", "-c", "kill -9 $$"}, {}, 60}, File("log")),
            "died of signal 9");
  EXPECT_EQ(RunToEnd({{File("absent")}, {}, 60}, File("log")),
            "ended with 127");
}

TEST_F(GpuCheckTest, CommandThatHangsIsKilledWithItsChildren) {
  EXPECT_EQ(RunToEnd({{"sh", "-c", "sleep 1000 & wait"}, {}, 1}, File("log")),
            "was killed after 1 s");
}

TEST_F(GpuCheckTest, CommandGetsItsEnvironmentAndItsLog) {
  EXPECT_EQ(RunToEnd({{"sh", "-c", "echo $WORD"}, {{"WORD", "slab"}}, 60},
                     File("log")),
            "");
  std::string said;
  std::getline(std::ifstream(File("log")), said);
  EXPECT_EQ(said, "slab");
}

Report OneCheck(const Outcome& outcome) {
  Report report = {true, "2026-01-01T00:00:00Z", {}, {}};
  report.checks.emplace_back(Check{"mps", "import under MPS", {}, ""}, outcome);
  return report;
}

TEST_F(GpuCheckTest, ReportHoldsOnlyIfNothingFailed) {
  EXPECT_TRUE(AllHeld(OneCheck({Verdict::kSkipped, "why", {}, 0})));
  EXPECT_FALSE(AllHeld(OneCheck({Verdict::kFailed, "why", {}, 0})));
}

TEST_F(GpuCheckTest, ReportSaysTheSameToPeopleAndMachines) {
  Report report =
      OneCheck({Verdict::kFailed,
                "",
                {{"A.x", Verdict::kFailed, "a\nb | c", {{"create_us", "1.5"}}}},
                2});
  report.checks[0].first.otherwise = "try another";
  const std::string markdown = Markdown(report);
  EXPECT_THAT(markdown, HasSubstr("**Emulated**"));
  EXPECT_THAT(markdown, HasSubstr("NOT all held"));
  EXPECT_THAT(markdown, HasSubstr("- mps, A.x: a b \\| c\n"));
  EXPECT_THAT(markdown, HasSubstr("| mps | create_us | 1.5 |"));
  EXPECT_THAT(markdown, HasSubstr("- mps, then: try another\n"));
  const auto json = nlohmann::json::parse(Json(report));
  EXPECT_EQ(json["held"], false);
  EXPECT_EQ(json["checks"][0]["verdict"], "failed");
  EXPECT_EQ(json["checks"][0]["cases"][0]["figures"]["create_us"], "1.5");
}

// Otherwise a harmless surprise would turn the report red.
TEST_F(GpuCheckTest, OptionalCheckMayDiffer) {
  Report report = OneCheck({Verdict::kFailed, "why", {}, 0});
  report.checks[0].first.weight = Weight::kInformative;
  EXPECT_TRUE(AllHeld(report));
  EXPECT_THAT(Markdown(report), HasSubstr("| differs |"));
  EXPECT_THAT(Markdown(report), HasSubstr("not needed\n\n- mps: why\n"));
  EXPECT_THAT(Markdown(report), HasSubstr("## Failed\n\nNone."));
  const auto json = nlohmann::json::parse(Json(report));
  EXPECT_EQ(json["held"], true);
  EXPECT_EQ(json["checks"][0]["needed"], false);
  EXPECT_EQ(json["checks"][0]["verdict"], "differs");
}

TEST_F(GpuCheckTest, RequiredChecksComeFirst) {
  std::vector<std::string> names;
  for (const Check& check : Checks({true, false, "/prefix", "/folder"})) {
    names.push_back(check.name);
  }
  ASSERT_GE(names.size(), 13u);
  names.resize(13);
  EXPECT_THAT(names,
              ElementsAre("export", "aliases", "keep", "teardown", "unmap",
                          "end-to-end", "deaths", "graph-swap", "views",
                          "takeover", "weights", "allocators", "conformance"));
}

TEST_F(GpuCheckTest, RequiredCheckNamesAWayOutWhereItDoesNotHold) {
  std::vector<Check> checks = Checks({true, false, "/prefix", "/folder"});
  checks.resize(11);  // gpu_day's first part
  for (const Check& check : checks) {
    EXPECT_THAT(check.otherwise, HasSubstr("try")) << check.name;
  }
}

// A test that hangs ends early enough for its program to report the others.
TEST_F(GpuCheckTest, CheckOfARealDeviceTakesAMinuteAtMost) {
  for (const Check& check : Checks({false, false, "/prefix", "/folder"})) {
    if (check.name == "vllm") continue;
    EXPECT_LE(check.command.limit_s,
              check.name == "torch" ? kLongCheckLimitS : kCheckLimitS)
        << check.name;
    const std::string& patience =
        check.command.environment.at("FINESERVE_TEST_PATIENCE");
    EXPECT_LT(std::stoul(patience), check.command.limit_s) << check.name;
  }
}

TEST_F(GpuCheckTest, CheckThatTakesLongerNamesWhereItStopped) {
  const Plan plan = {true, false, "/prefix",
                     File("").substr(0, File("").size() - 1)};
  Check check = {"slow", "?", {}, ""};
  check.command = {{"sh", "-c",
                    "echo '[ RUN      ] A.x'; echo '[       OK ] A.x (1 ms)';"
                    "echo '[ RUN      ] A.y'; exec sleep 1000"},
                   {},
                   1};
  const Outcome outcome = Perform(plan, check);
  EXPECT_EQ(outcome.verdict, Verdict::kFailed);
  EXPECT_EQ(outcome.reason, "was killed after 1 s, in A.y");
}

TEST_F(GpuCheckTest, RealDeviceIsFoundAsAnyProgramFindsIt) {
  for (const Check& check : Checks({false, false, "/prefix", "/folder"})) {
    if (!check.skipped.empty()) continue;
    const Environment& e = check.command.environment;
    EXPECT_EQ(e.at("FINESERVE_LIBCUDA"), "libcuda.so.1") << check.name;
    EXPECT_EQ(e.count("FINESERVE_ALLOW_MPS"), 0u) << check.name;
  }
}

TEST_F(GpuCheckTest, MachineIsDescribedByWhatDecidesOverTheOtherChecks) {
  const std::string pipes = File("mps");
  std::filesystem::create_directory(pipes);
  setenv("CUDA_MPS_PIPE_DIRECTORY", pipes.c_str(), 1);
  setenv("EMUCUDA_DIR", File("gpu").c_str(), 1);
  const auto modes = [] {
    const auto machine = DescribeMachine(true, FINESERVE_BUILD_DIR);
    return machine.ok() ? machine->modes : machine.status().ToString();
  };
  EXPECT_EQ(modes(),
            "persistence on, compute mode 0, MIG off, confidential computing "
            "off, MPS none seen");
  setenv("EMUCUDA_PERSISTENCE", "off", 1);
  setenv("EMUCUDA_CONFIDENTIAL", "on", 1);
  std::ofstream(pipes + "/control").close();
  EXPECT_EQ(modes(),
            "persistence off, compute mode 0, MIG off, confidential computing "
            "on, MPS at " +
                pipes);
  for (const char* name : {"CUDA_MPS_PIPE_DIRECTORY", "EMUCUDA_DIR",
                           "EMUCUDA_PERSISTENCE", "EMUCUDA_CONFIDENTIAL"}) {
    unsetenv(name);
  }
}

TEST_F(GpuCheckTest, StockVllmRunsOnlyWhenAskedFor) {
  for (const bool asked : {false, true}) {
    const Check vllm =
        Checks({true, false, "/prefix", "/folder", asked}).back();
    EXPECT_EQ(vllm.name, "vllm");
    EXPECT_EQ(vllm.skipped.empty(), asked) << vllm.skipped;
  }
}

}  // namespace
}  // namespace fineserve::gpu
