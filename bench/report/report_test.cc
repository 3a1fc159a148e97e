#include "bench/report/report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fineserve::bench {
namespace {

About Lengths() {
  return {"lengths",
          "How long is it?",
          {{"--data", "DIR", "../data", "where it is"},
           {"--seconds", "N", "20", "of each run"},
           {"--kills", "N", "5", "how many", /*or_zero=*/true}}};
}

Arguments Read(const std::vector<std::string>& words) {
  return std::get<Arguments>(Arguments::Parse(words, Lengths()));
}
Arguments::Answer AnswerTo(const std::vector<std::string>& words) {
  return std::get<Arguments::Answer>(Arguments::Parse(words, Lengths()));
}

TEST(ArgumentsTest, ArgumentThatIsNotGivenHasItsUsualValue) {
  const Arguments read = Read({"--seconds", "1.5"});
  EXPECT_EQ(read.Text("--data"), "../data");
  EXPECT_EQ(read.Number("--seconds"), 1.5);
  EXPECT_EQ(read.json_path(), "");
}

TEST(ArgumentsTest, ValueComesAsTheNextWordOrBehindAnEqualsSign) {
  EXPECT_EQ(Read({"--json", "a.json"}).json_path(), "a.json");
  EXPECT_EQ(Read({"--json=a=b.json"}).json_path(), "a=b.json");
  EXPECT_EQ(Read({"--seconds=7"}).Count("--seconds"), 7u);
}

TEST(ArgumentsTest, CountThatMayBeZeroTakesZero) {
  EXPECT_EQ(Read({"--kills", "0"}).Count("--kills"), 0u);
}

TEST(ArgumentsTest, HelpSaysTheQuestionAndEveryArgument) {
  for (const char* word : {"--help", "-h"}) {
    const auto answer = AnswerTo({"--seconds", "3", word});
    EXPECT_EQ(answer.exit_status, 0);
    for (const char* part :
         {"usage: scripts/bench lengths [--data DIR] [--seconds N] [--kills N]",
          "How long is it?", "where it is (../data)", "--json FILE",
          "  scripts/bench lengths --json lengths.json\n"}) {
      EXPECT_NE(answer.text.find(part), std::string::npos)
          << part << " is not in:\n"
          << answer.text;
    }
  }
}

TEST(ArgumentsTest, MistakeIsOneLineWithTheWayToHelpAndExit2) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes =
      {{{"--jason", "x"}, "unknown argument \"--jason\""},
       {{"x"}, "unknown argument \"x\""},
       {{"--json"}, "--json needs FILE"},
       {{"--seconds", "many"}, "--seconds \"many\" is not a positive number"},
       {{"--seconds", "0"}, "--seconds \"0\" is not a positive number"},
       {{"--kills", "-1"}, "--kills \"-1\" is not a positive number or 0"}};
  for (const auto& [words, what] : mistakes) {
    const auto answer = AnswerTo(words);
    EXPECT_EQ(answer.exit_status, 2);
    EXPECT_EQ(answer.text,
              "lengths: " + what + "; see scripts/bench lengths --help\n");
  }
}

}  // namespace
}  // namespace fineserve::bench
