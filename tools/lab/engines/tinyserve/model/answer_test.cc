#include "tools/lab/engines/tinyserve/model/answer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tinyserve {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Ne;
using ::testing::Not;
using ::testing::SizeIs;

struct Slot {
  SlotShape shape;
  std::vector<uint64_t> words;
};

Slot Filled(const SlotShape& shape, State state) {
  Slot slot = {shape, std::vector<uint64_t>(shape.planes * shape.plane_words)};
  for (uint32_t plane = 0; plane < shape.planes; ++plane) {
    FillSlot(shape, state, plane, &slot.words[plane * shape.plane_words]);
  }
  return slot;
}

State Digest(const Slot& slot) {
  State digest = 0;
  for (uint32_t plane = 0; plane < slot.shape.planes; ++plane) {
    digest += SlotDigest(slot.shape, plane,
                         &slot.words[plane * slot.shape.plane_words]);
  }
  return digest;
}

constexpr SlotShape kShapes[] = {{1, 1}, {1, 512}, {4, 512}, {2, 1}, {3, 264}};
constexpr State kState = 0x0123456789abcdef;

TEST(AnswerTest, DigestOfASlotIsItsState) {
  for (const SlotShape& shape : kShapes) {
    for (const State state : {State{0}, State{1}, kState, ~State{0}}) {
      EXPECT_EQ(Digest(Filled(shape, state)), state)
          << shape.planes << " planes of " << shape.plane_words;
    }
  }
}

TEST(AnswerTest, EveryBitOfASlotCounts) {
  const Slot slot = Filled({2, 40}, kState);
  for (size_t word = 0; word < slot.words.size(); ++word) {
    for (int bit = 0; bit < 64; ++bit) {
      Slot wrong = slot;
      wrong.words[word] ^= uint64_t{1} << bit;
      ASSERT_NE(Digest(wrong), kState) << word << " " << bit;
    }
  }
}

TEST(AnswerTest, WordsAndPlanesThatChangePlacesCount) {
  const SlotShape shape = {2, 40};
  Slot planes = Filled(shape, kState);
  std::swap_ranges(planes.words.begin(), planes.words.begin() + 40,
                   planes.words.begin() + 40);
  EXPECT_NE(Digest(planes), kState);
  Slot words = Filled(shape, kState);
  std::swap(words.words[3], words.words[4]);
  EXPECT_NE(Digest(words), kState);
}

TEST(AnswerTest, ZeroedSlotCounts) {
  Slot slot = Filled({1, 512}, kState);
  slot.words.assign(slot.words.size(), 0);
  EXPECT_NE(Digest(slot), kState);
}

TEST(AnswerTest, ChainTellsModelSeedAndEveryTokenApart) {
  const std::set<std::vector<Token>> answers = {
      ExpectedAnswer("a", {1, 2, 3}, {}),
      ExpectedAnswer("b", {1, 2, 3}, {}),
      ExpectedAnswer("a", {1, 2, 4}, {}),
      ExpectedAnswer("a", {9, 2, 3}, {}),
      ExpectedAnswer("a", {2, 1, 3}, {}),
      ExpectedAnswer("a", {1, 2}, {}),
      ExpectedAnswer("a", {1, 2, 3}, {.seed = 1})};
  EXPECT_THAT(answers, SizeIs(7));
}

TEST(AnswerTest, LongerAnswerBeginsWithTheShorter) {
  const Wanted wanted = {.most_tokens = 20, .ignore_end = true};
  auto longer = ExpectedAnswer("m", {5},
                               {.most_tokens = 50,  //
                                .ignore_end = true});
  longer.resize(20);
  EXPECT_EQ(longer, ExpectedAnswer("m", {5}, wanted));
}

// The prompt, found by trying, has an answer that ends early.
TEST(AnswerTest, AnswerEndsWhereTheModelChoosesUnlessItMayNot) {
  Token prompt = 1;
  std::vector<Token> answer;
  do {
    answer = ExpectedAnswer("m", {++prompt}, {.most_tokens = 100});
  } while (answer.size() == 100);
  const auto length = static_cast<uint32_t>(answer.size());
  EXPECT_EQ(answer.back(), kEndOfText);
  answer.pop_back();
  EXPECT_THAT(answer, Not(Contains(kEndOfText)));

  const auto all =
      ExpectedAnswer("m", {prompt}, {.most_tokens = 100, .ignore_end = true});
  EXPECT_THAT(all, SizeIs(100));
  EXPECT_THAT(all, Each(Ne(kEndOfText)));
  const auto later = ExpectedAnswer(
      "m", {prompt}, {.most_tokens = 100, .least_tokens = length});
  EXPECT_THAT(later, SizeIs(testing::Gt(length)));
  EXPECT_THAT(ExpectedAnswer("m", {prompt},
                             {.most_tokens = 100, .least_tokens = length - 1}),
              SizeIs(length));
}

}  // namespace
}  // namespace tinyserve
