#include "daemon/base/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <vector>

namespace fineserve::cli {
namespace {

using ::testing::HasSubstr;

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() : app_("does what the user asks", "program") {
    app_.add_option("--pool", pool_);
    app_.set_version_flag("--version", "program 1");
    CLI::App* show = app_.add_subcommand("show");
    show->add_flag("--once", once_);
    show->add_subcommand("slabs");
  }

  // Returns the exit code, or no value if the command was carried out.
  std::optional<int> Run(const std::vector<const char*>& words) {
    std::vector<const char*> argv = {"program"};
    argv.insert(argv.end(), words.begin(), words.end());
    testing::internal::CaptureStderr();
    std::optional<int> code;
    try {
      app_.parse(static_cast<int>(argv.size()), argv.data());
    } catch (const CLI::ParseError& e) {
      code = EndOf(app_, e);
    }
    said_ = testing::internal::GetCapturedStderr();
    return code;
  }

  CLI::App app_;
  std::string pool_;
  bool once_ = false;
  std::string said_;
};

TEST_F(CommandLineTest, SlipsOfTheHandAreCorrected) {
  for (const auto& [words, meant] :
       {std::pair{std::vector<const char*>{"--pol", "1GiB"}, "--pool"},
        {{"--pol=1GiB"}, "--pool"},
        {{"show", "--onec"}, "--once"},
        {{"show", "slbas"}, "slabs"},
        {{"show", "--polo", "1GiB"}, "--pool"}}) {
    EXPECT_EQ(Run(words), 2);
    EXPECT_THAT(said_, HasSubstr(std::string("; did you mean ") + meant +
                                 "?; see program --help\n"));
  }
}

TEST_F(CommandLineTest, UnknownFlagIsSaidBeforeOneThatIsMissing) {
  app_.get_option("--pool")->required();
  EXPECT_EQ(Run({"--pol=1GiB"}), 2);
  EXPECT_THAT(said_, HasSubstr("not expected: --pol"));
  EXPECT_THAT(said_, HasSubstr("; did you mean --pool?"));
  EXPECT_EQ(Run({}), 2);
  EXPECT_THAT(said_, HasSubstr("--pool is required"));
}

TEST_F(CommandLineTest, MistakesAreSaidOnOneLine) {
  EXPECT_EQ(Run({"--pool"}), 2);
  EXPECT_THAT(said_, HasSubstr("program: --pool"));
  EXPECT_EQ(said_.find('\n'), said_.size() - 1);
  EXPECT_EQ(Run({"--pool", "1GiB"}), std::nullopt);
}

TEST_F(CommandLineTest, HelpThatCannotBeWrittenIsAnError) {
  for (const char* asked : {"--help", "--version"}) {
    fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    ASSERT_NE(freopen("/dev/full", "w", stdout), nullptr);
    const std::optional<int> code = Run({asked});
    dup2(before, STDOUT_FILENO);
    close(before);
    clearerr(stdout);
    std::cout.clear();
    EXPECT_EQ(code, 1) << asked;
    EXPECT_THAT(said_, HasSubstr("cannot write the output: No space left"));
  }
}

const std::vector<std::string> kWords = {"slabs",  "top",        "models",
                                         "--once", "--interval", "up"};

TEST(SuggestionTest, SlipOfTheHandIsCorrected) {
  for (const auto& [typed, meant] : {std::pair{"slbas", "slabs"},
                                     {"slab", "slabs"},
                                     {"modles", "models"},
                                     {"tpo", "top"},
                                     {"--onec", "--once"},
                                     {"--intervall", "--interval"},
                                     {"--intreval", "--interval"}}) {
    EXPECT_EQ(DidYouMean(typed, kWords),
              std::string("; did you mean ") + meant + "?")
        << typed;
  }
}

TEST(SuggestionTest, OtherWordsAreNotGuessed) {
  for (const char* typed :
       {"", "u", "ps", "engines", "--json", "-", "tap-it"}) {
    EXPECT_EQ(DidYouMean(typed, kWords), "") << typed;
  }
}

TEST(SuggestionTest, NearestComesFirst) {
  EXPECT_EQ(DidYouMean("modes", {"nodes", "models", "modest"}),
            "; did you mean nodes?");
  EXPECT_EQ(DidYouMean("--floors", {"--colors", "--floor"}),
            "; did you mean --floor?");
}

}  // namespace

}  // namespace fineserve::cli
