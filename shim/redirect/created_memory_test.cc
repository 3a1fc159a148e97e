#include "shim/redirect/created_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

namespace fineserve::shim {
namespace {

TEST(CreatedMemoryTest, ForgetsWhatWasRemoved) {
  const auto memory = std::make_unique<CreatedMemory>();
  EXPECT_TRUE(memory->empty());
  EXPECT_TRUE(memory->Add(7, 100));
  EXPECT_FALSE(memory->empty());
  EXPECT_EQ(memory->Remove(8), 0u);
  EXPECT_EQ(memory->Remove(7), 100u);
  EXPECT_EQ(memory->Remove(7), 0u);
  EXPECT_TRUE(memory->empty());
}

// A driver may reuse the value of a handle.
TEST(CreatedMemoryTest, HandleThatIsAddedAgainHasItsNewSize) {
  const auto memory = std::make_unique<CreatedMemory>();
  EXPECT_TRUE(memory->Add(7, 100));
  EXPECT_TRUE(memory->Add(7, 50));
  EXPECT_EQ(memory->Remove(7), 50u);
  EXPECT_TRUE(memory->empty());
}

TEST(CreatedMemoryTest, FullTableRefuses) {
  const auto memory = std::make_unique<CreatedMemory>();
  for (size_t i = 1; i < CreatedMemory::kCapacity; ++i) {
    ASSERT_TRUE(memory->Add(i, i));
  }
  EXPECT_FALSE(memory->Add(CreatedMemory::kCapacity, 1));
  EXPECT_EQ(memory->Remove(5), 5u);
  EXPECT_TRUE(memory->Add(CreatedMemory::kCapacity, 1));
}

// Compares with a map, using handles that are addresses, small numbers and
// colliding values.
TEST(CreatedMemoryTest, RandomHistoriesAreThoseOfAMap) {
  std::mt19937_64 random(20261125);
  const auto memory = std::make_unique<CreatedMemory>();
  std::map<uint64_t, uint64_t> expected;
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t number = random() % 9'000;
    const uint64_t handle = number % 3 == 0 ? 0x7f0000000000 + number * 0x10000
                                            : number << (number % 3 * 16);
    if (random() % 2 == 0) {
      const uint64_t bytes = 1 + random() % 1000;
      ASSERT_TRUE(memory->Add(handle, bytes));
      expected[handle] = bytes;
      continue;
    }
    const auto it = expected.find(handle);
    ASSERT_EQ(memory->Remove(handle), it == expected.end() ? 0 : it->second);
    if (it != expected.end()) expected.erase(it);
    ASSERT_EQ(memory->empty(), expected.empty());
  }
}

}  // namespace
}  // namespace fineserve::shim
