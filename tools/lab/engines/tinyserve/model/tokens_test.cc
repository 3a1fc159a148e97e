#include "tools/lab/engines/tinyserve/model/tokens.h"

#include <gmock/gmock.h>

#include <set>

namespace tinyserve {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Ne;
using ::testing::SizeIs;

TEST(TokensTest, EveryWordOfTheVocabularyIsReadAsItself) {
  std::set<std::string> words;
  for (Token token = 1; token < kVocabulary; ++token) {
    const std::string word = Word(token);
    ASSERT_THAT(Tokenise(word), ElementsAre(token)) << word;
    ASSERT_TRUE(words.insert(word).second) << word;
  }
}

TEST(TokensTest, AnswerReadBackIsItsIds) {
  const std::vector<Token> tokens = {17, 128'255, 1, 1, 99};
  EXPECT_EQ(Tokenise(Text(tokens)), tokens);
}

TEST(TokensTest, OtherWordsHaveIdsOfTheVocabularyThatStay) {
  const auto once = Tokenise("What is the capital of France? 你好 bababax");
  EXPECT_THAT(once, SizeIs(8));
  EXPECT_THAT(once, Each(testing::Lt(kVocabulary)));
  EXPECT_EQ(once, Tokenise("What is the capital of France? 你好 bababax"));
  EXPECT_NE(Tokenise("France?"), Tokenise("France"));
}

TEST(TokensTest, WhiteSpaceSeparatesAndIsNoToken) {
  EXPECT_EQ(Tokenise("\t a\n\nb \r\n"), Tokenise("a b"));
  EXPECT_THAT(Tokenise(" \n "), IsEmpty());
  EXPECT_THAT(Tokenise(""), IsEmpty());
}

TEST(TokensTest, NothingIsReadAsTheEnd) {
  EXPECT_EQ(Word(kEndOfText), "");
  EXPECT_EQ(Text({5, kEndOfText}), Word(5));
  EXPECT_THAT(Tokenise("bababa"), Each(Ne(kEndOfText)));
}

TEST(TokensTest, RolesAreTokensOfTheirOwn) {
  const std::string prompt =
      ChatPrompt({{"system", "be brief"}, {"user", "hello"}});
  EXPECT_EQ(prompt, "<|system|> be brief <|user|> hello <|assistant|>");
  EXPECT_THAT(Tokenise(prompt), SizeIs(6));
}

}  // namespace
}  // namespace tinyserve
