#include "tools/lab/device/machine/range_locks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tools/lab/device/machine/test_machine.h"

namespace fineserve::emucuda {
namespace {

class RangeLocksTest : public ::testing::Test {
 protected:
  // Opens a fresh description of the same file, which the kernel treats as
  // another process's.
  Descriptor Open() { return machine_.Folder().OpenFile(0, "memory"); }

  TestMachine machine_;
};

TEST_F(RangeLocksTest, ReadersShareAndExcludeAWriter) {
  const Descriptor a = Open(), b = Open();
  EXPECT_TRUE(TryReadLock(a.get(), {0, 10}));
  EXPECT_TRUE(TryReadLock(b.get(), {5, 15}));
  EXPECT_FALSE(TryWriteLock(b.get(), {0, 10}));
  EXPECT_TRUE(TryWriteLock(b.get(), {10, 15}));
}

TEST_F(RangeLocksTest, ClosingTheDescriptionUnlocks) {
  const Descriptor a = Open();
  {
    const Descriptor b = Open();
    ASSERT_TRUE(TryWriteLock(b.get(), {0, 10}));
    EXPECT_TRUE(FindConflict(a.get(), {0, 1}).has_value());
  }
  EXPECT_FALSE(FindConflict(a.get(), {0, 10}).has_value());
}

TEST_F(RangeLocksTest, FirstFitSkipsWhatIsLocked) {
  const Descriptor a = Open(), probe = Open();
  TryReadLock(a.get(), {0, 4});
  TryReadLock(a.get(), {6, 8});
  EXPECT_EQ(FindUnlocked(probe.get(), 12, 2), 4u);
  EXPECT_EQ(FindUnlocked(probe.get(), 12, 3), 8u);
  EXPECT_EQ(FindUnlocked(probe.get(), 12, 4), 8u);
  EXPECT_EQ(FindUnlocked(probe.get(), 12, 5), std::nullopt);
  EXPECT_EQ(FindUnlocked(probe.get(), 12, 13), std::nullopt);
}

// Compares with a byte map: several owners, overlaps, any order.
TEST_F(RangeLocksTest, SearchAndCountAgreeWithAByteMap) {
  constexpr uint64_t kLimit = 64;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const Descriptor owners[3] = {Open(), Open(), Open()};
    const Descriptor probe = Open();
    std::vector<bool> taken(kLimit);
    for (int i = 0; i < 8; ++i) {
      const uint64_t start = random() % kLimit;
      const uint64_t end = start + 1 + random() % (kLimit - start);
      if (end - start > 20) continue;
      ASSERT_TRUE(TryReadLock(owners[random() % 3].get(), {start, end}));
      std::fill(taken.begin() + static_cast<ptrdiff_t>(start),
                taken.begin() + static_cast<ptrdiff_t>(end), true);
    }
    ASSERT_EQ(
        LockedBytes(probe.get(), kLimit),
        static_cast<uint64_t>(std::count(taken.begin(), taken.end(), true)));
    for (const uint64_t bytes : {1, 3, 9}) {
      const auto gap = std::search_n(taken.begin(), taken.end(), bytes, false);
      const auto found = FindUnlocked(probe.get(), kLimit, bytes);
      if (gap == taken.end()) {
        ASSERT_EQ(found, std::nullopt);
      } else {
        ASSERT_EQ(found, static_cast<uint64_t>(gap - taken.begin()));
      }
    }
  }
}

}  // namespace
}  // namespace fineserve::emucuda
