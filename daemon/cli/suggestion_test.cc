#include "daemon/cli/suggestion.h"

#include <gtest/gtest.h>

namespace fineserve::cli {
namespace {

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
