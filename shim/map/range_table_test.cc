#include "shim/map/range_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>

namespace fineserve::shim {
namespace {

using Found = RangeTable::Found;

Redirection Range(uint64_t base, uint64_t bytes) {
  Redirection r;
  r.base = base;
  r.reserved_bytes = bytes;
  return r;
}

// A table takes 256 KiB, which is too much for some stacks.
std::unique_ptr<RangeTable> NewTable() {
  return std::make_unique<RangeTable>();
}

TEST(RangeTable, EmptyTableMayHoldNothing) {
  const auto table = NewTable();
  for (uint64_t address : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    EXPECT_FALSE(table->MayHold(address));
  }
}

TEST(RangeTable, ResidentAllocationIsNoKv) {
  const auto table = NewTable();
  EXPECT_FALSE(table->HoldsKv());
  Redirection weights = Range(0x1000, 0x100);
  weights.is_resident = true;
  ASSERT_TRUE(table->Insert(weights));
  EXPECT_FALSE(table->HoldsKv());
  ASSERT_TRUE(table->Insert(Range(0x3000, 0x100)));
  EXPECT_TRUE(table->HoldsKv());
}

TEST(RangeTable, TellsBaseFromInsideFromOutside) {
  const auto table = NewTable();
  ASSERT_TRUE(table->Insert(Range(0x1000, 0x100)));
  ASSERT_TRUE(table->Insert(Range(0x3000, 0x100)));
  Redirection out;
  EXPECT_EQ(table->Take(0xfff, &out), Found::kNothing);
  EXPECT_EQ(table->Take(0x1001, &out), Found::kInside);
  EXPECT_EQ(table->Take(0x10ff, &out), Found::kInside);
  EXPECT_EQ(table->Take(0x1100, &out), Found::kNothing);
  EXPECT_EQ(table->Take(0x2000, &out), Found::kNothing);
  EXPECT_EQ(table->Take(0x3000, &out), Found::kBase);
  EXPECT_EQ(out.base, 0x3000u);
  EXPECT_EQ(table->Take(0x3000, &out), Found::kNothing);
}

TEST(RangeTable, BoundsShrinkBackToNothing) {
  const auto table = NewTable();
  table->Insert(Range(0x1000, 0x100));
  table->Insert(Range(0x9000, 0x100));
  EXPECT_TRUE(table->MayHold(0x5000));
  Redirection out;
  table->Take(0x9000, &out);
  EXPECT_FALSE(table->MayHold(0x5000));
  EXPECT_TRUE(table->MayHold(0x10ff));
  table->Take(0x1000, &out);
  EXPECT_FALSE(table->MayHold(0x1000));
}

TEST(RangeTable, FullTableRefusesOneMore) {
  const auto table = NewTable();
  for (size_t i = 0; i < RangeTable::kCapacity; ++i) {
    ASSERT_TRUE(table->Insert(Range(0x1000 * (i + 1), 0x1000)));
  }
  EXPECT_FALSE(table->Insert(Range(0x10, 0x10)));
}

TEST(RangeTable, AgreesWithAMapOverRandomOperations) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto table = NewTable();
  std::map<uint64_t, Redirection> model;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t base = 0x1000 * (1 + random() % 64);
    if (random() % 2 == 0 && model.count(base) == 0) {
      model[base] = Range(base, 0x800);
      ASSERT_TRUE(table->Insert(model[base]));
    } else {
      Redirection out;
      const bool known = model.erase(base) > 0;
      ASSERT_EQ(table->Take(base, &out),
                known ? Found::kBase : Found::kNothing);
    }
    for (const auto& [b, range] : model) {
      ASSERT_TRUE(table->MayHold(b) && table->MayHold(b + 0x7ff));
    }
  }
}

TEST(RangeTable, OnlyOneOfTwoThreadsTakesABase) {
  const auto table = NewTable();
  std::atomic<int> taken{0};
  const auto take = [&] {
    for (uint64_t i = 1; i <= 1000; ++i) {
      Redirection out;
      if (table->Take(0x1000 * i, &out) == Found::kBase) ++taken;
    }
  };
  for (uint64_t i = 1; i <= 1000; ++i) table->Insert(Range(0x1000 * i, 0x800));
  std::thread other(take);
  take();
  other.join();
  EXPECT_EQ(taken, 1000);
}

TEST(RangeTable, FirstOverlapIsTheLowestThatSharesAByte) {
  auto table = std::make_unique<RangeTable>();
  for (driver::CUdeviceptr base : {0x1000, 0x3000}) {
    Redirection range;
    range.base = base;
    range.reserved_bytes = 0x1000;
    table->Insert(range);
  }
  struct {
    driver::CUdeviceptr address;
    uint64_t bytes;
    driver::CUdeviceptr want;  // 0 for none
  } const cases[] = {{0x0, 0x1000, 0},         {0x0, 0x1001, 0x1000},
                     {0x1fff, 1, 0x1000},      {0x2000, 0x1000, 0},
                     {0x2000, 0x1001, 0x3000}, {0x3800, 1, 0x3000},
                     {0x4000, 0x1000, 0},      {0x1800, 0x9000, 0x1000}};
  for (const auto& c : cases) {
    Redirection found;
    const bool any = table->FirstOverlap(c.address, c.bytes, &found);
    EXPECT_EQ(any ? found.base : 0, c.want) << std::hex << c.address;
  }
}

}  // namespace
}  // namespace fineserve::shim
