#include "daemon/proxy/replica_choice/prefix_index.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

constexpr size_t kBlock = PromptPrefix::kBlockBytes;

PromptPrefix PrefixOf(const std::string& text,
                      const std::string& session = "") {
  PromptPrefix prefix;
  prefix.Add(text);
  prefix.SetSession(session);
  return prefix;
}

TEST(PromptPrefixTest, PromptsThatBeginAlikeShareTheirFirstBlocks) {
  const std::string common(3 * kBlock, 'a');
  const PromptPrefix one = PrefixOf(common + std::string(kBlock, 'b')),
                     other = PrefixOf(common + std::string(kBlock, 'c'));
  ASSERT_EQ(one.blocks().size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one.blocks()[i], other.blocks()[i]);
  EXPECT_NE(one.blocks()[3], other.blocks()[3]);
  // A block's hash covers all the text before the block.
  EXPECT_NE(PrefixOf("x" + common).blocks()[1], one.blocks()[1]);
}

// A chat's history consists of several texts.
TEST(PromptPrefixTest, TextMayComeInPieces) {
  PromptPrefix prefix;
  prefix.Add(std::string(kBlock / 2, 'a'));
  prefix.Add(std::string(kBlock, 'b'));
  PromptPrefix longer = prefix;
  ASSERT_EQ(prefix.blocks().size(), 1u);
  longer.Add(std::string(kBlock, 'c'));
  ASSERT_EQ(longer.blocks().size(), 2u);
  EXPECT_EQ(longer.blocks()[0], prefix.blocks()[0]);
  EXPECT_EQ(longer.TokensOf(1, 250), 100u);
}

TEST(PromptPrefixTest, WorkOnALongPromptIsBounded) {
  const PromptPrefix prefix =
      PrefixOf(std::string(2 * PromptPrefix::kMostBlocks * kBlock, 'a'));
  EXPECT_EQ(prefix.blocks().size(), PromptPrefix::kMostBlocks);
  EXPECT_EQ(prefix.TokensOf(PromptPrefix::kMostBlocks, 1000), 500u);
}

TEST(PrefixIndexTest, KnowsTheTokensThatAnEarlierPromptShares) {
  PrefixIndex index;
  const std::string history(4 * kBlock, 'a');
  EXPECT_EQ(index.Known("chat", PrefixOf(history), 1000), 0u);
  index.Sent("chat", PrefixOf(history), 1000);
  EXPECT_EQ(index.Known("chat", PrefixOf(history), 1000), 1000u);
  const PromptPrefix next = PrefixOf(history + std::string(kBlock, 'b'));
  EXPECT_EQ(index.Known("chat", next, 1250), 1000u);
  EXPECT_EQ(index.Known("chat", PrefixOf(std::string(kBlock, 'a') + "b"), 260),
            250u);
  EXPECT_EQ(index.Known("code", next, 1250), 0u);
  index.Forget();
  EXPECT_EQ(index.Known("chat", next, 1250), 0u);
}

TEST(PrefixIndexTest, AdaptersDoNotShareWithTheirModel) {
  PrefixIndex index;
  const PromptPrefix of_model = PrefixOf(std::string(kBlock, 'a'));
  PromptPrefix of_adapter = of_model;
  of_adapter.SetAdapter("legal");
  index.Sent("chat", of_model, 256);
  EXPECT_EQ(index.Known("chat", of_adapter, 256), 0u);
}

TEST(PrefixIndexTest, SessionIsKnownByItsName) {
  PrefixIndex index;
  index.Sent("chat", PrefixOf("short", "s1"), 700);
  EXPECT_EQ(index.Known("chat", PrefixOf("other", "s1"), 900), 700u);
  EXPECT_EQ(index.Known("chat", PrefixOf("other", "s1"), 300), 300u);
  EXPECT_EQ(index.Known("chat", PrefixOf("other", "s2"), 900), 0u);
}

TEST(PrefixIndexTest, UsedPrefixStaysAndTheOldestGoes) {
  PrefixIndex index;
  const PromptPrefix used = PrefixOf(std::string(kBlock, 'u')),
                     old = PrefixOf(std::string(kBlock, 'o'));
  index.Sent("chat", used, 256);
  index.Sent("chat", old, 256);
  for (size_t i = 0; i < 3 * PrefixIndex::kMostKept; ++i) {
    index.Sent(
        "chat",
        PrefixOf(std::string(kBlock, 'x') + absl::StrCat(i), absl::StrCat(i)),
        1);
    if (i % 100 != 0) continue;
    ASSERT_NE(index.Known("chat", used, 256), 0u) << i;
  }
  EXPECT_EQ(index.Known("chat", old, 256), 0u);
}

}  // namespace
}  // namespace fineserve::proxy
