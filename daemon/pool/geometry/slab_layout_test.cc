#include "daemon/pool/geometry/slab_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "daemon/contract/abi/byte_size.h"

namespace fineserve::slab {
namespace {

using abi::kKiB;
using abi::kMiB;

SlabLayout Make(const PoolGeometry& pool, const Format& format) {
  const auto layout = SlabLayout::Create(pool, format);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *layout;
}

TEST(SlabLayoutTest, TheSummarysSlabIs8BlocksOf32KiBOr16Of16KiB) {
  const PoolGeometry pool{256 * kKiB, 1, 64};
  const SlabLayout fp16 = Make(pool, {1, 32 * kKiB, 16});
  const SlabLayout fp8 = Make(pool, {1, 16 * kKiB, 16});
  EXPECT_EQ(fp16.Blocks(1).size(), 8);
  EXPECT_EQ(fp16.LeastBlocks(), 8);
  EXPECT_EQ(fp8.LeastBlocks(), 16);
  EXPECT_EQ(fp16.Waste(), 0);
  EXPECT_EQ(fp8.Waste(), 0);
}

TEST(SlabLayoutTest, AnExactIdIsTheSlabTimesBlocksPerSlabPlusTheLocalId) {
  const SlabLayout layout = Make({2 * kMiB, 32, 100}, {32, 64 * kKiB, 16});
  EXPECT_EQ(layout.Blocks(0).first, 0);
  EXPECT_EQ(layout.Blocks(7).first, 7 * 32);
  EXPECT_EQ(layout.Blocks(7).size(), 32);
  EXPECT_EQ(layout.ViewBlocks(), 101 * 32);
}

TEST(SlabLayoutTest, ABlockOverASlabsBoundaryIsInNeither) {
  // 2 MiB / 768 KiB: a block boundary meets a boundary of shares only after
  // every third share.
  const SlabLayout layout = Make({2 * kMiB, 1, 10}, {1, 768 * kKiB, 16});
  EXPECT_EQ(layout.Blocks(1).first, 3);  // block 2 covers 1.5 to 2.25 MiB
  EXPECT_EQ(layout.Blocks(1).end, 5);
  EXPECT_EQ(layout.Blocks(2).first, 6);  // block 5 covers 3.75 to 4.5 MiB
  EXPECT_EQ(layout.Blocks(2).end, 8);
  EXPECT_EQ(layout.Blocks(3).first, 8);
  EXPECT_EQ(layout.LeastBlocks(), 2);
  EXPECT_EQ(layout.Blocks(2).size(), 2);
  EXPECT_DOUBLE_EQ(layout.MeanBlocks(), 2);
  EXPECT_DOUBLE_EQ(layout.StraddleWaste(), 0.25);
}

TEST(SlabLayoutTest, GranulesThatNoPlaneGetsAreTheTail) {
  const SlabLayout layout = Make({2 * kMiB, 196, 10}, {36, 64 * kKiB, 16});
  EXPECT_EQ(layout.granules_per_plane(), 5);
  EXPECT_DOUBLE_EQ(layout.TailWaste(), 16.0 / 196);
  EXPECT_NEAR(layout.StraddleWaste(), 0, 1e-12);
}

TEST(SlabLayoutTest, AFormatThatDoesNotFitGetsTheSlabThatDoes) {
  const auto planes =
      SlabLayout::Create({2 * kMiB, 32, 10}, {64, 64 * kKiB, 16});
  ASSERT_FALSE(planes.ok());
  EXPECT_NE(std::string(planes.status().message()).find("use slabs of 128 MiB"),
            std::string::npos)
      << planes.status();
  // The slab is large enough, but has too few granules.
  const auto whole = SlabLayout::Create({8 * kMiB, 1, 10}, {4, 64 * kKiB, 16});
  ASSERT_FALSE(whole.ok());
  EXPECT_NE(std::string(whole.status().message())
                .find("use slabs of 8 MiB in 4 planes"),
            std::string::npos)
      << whole.status();
  EXPECT_TRUE(SlabLayout::Create({2 * kMiB, 4, 10}, {4, 64 * kKiB, 16}).ok());
  const auto page = SlabLayout::Create({2 * kMiB, 1, 10}, {1, 3 * kMiB, 16});
  ASSERT_FALSE(page.ok());
  EXPECT_NE(std::string(page.status().message()).find("use slabs of 6 MiB"),
            std::string::npos)
      << page.status();
  EXPECT_TRUE(SlabLayout::Create({2 * kMiB, 3, 10}, {1, 3 * kMiB, 16}).ok());
}

// Planes and pages of real models, each in slabs with and without a tail.
struct Shape {
  uint32_t planes;
  uint64_t page_bytes;
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const uint32_t planes : {1, 32, 36, 56, 64, 80, 96, 160}) {
    for (const uint64_t page : {65536, 32768, 33792, 18432, 17408, 73728}) {
      shapes.push_back({planes, page});
    }
  }
  return shapes;
}

// Checks block by block, without the formulas under test, that no two usable
// blocks overlap, that each is in its slab's share, and that none is missed.
void CheckEveryBlock(const PoolGeometry& pool, const Format& format) {
  const SlabLayout layout = Make(pool, format);
  const uint64_t share = layout.plane_bytes();
  ASSERT_LE(share * format.planes, pool.slab_bytes());
  uint64_t usable = 0, next_free_id = 0;
  uint64_t least = UINT64_MAX, most = 0;
  for (uint64_t view = 0; view <= pool.slab_count; ++view) {
    const abi::BlockRange blocks = layout.Blocks(view);
    ASSERT_GE(blocks.first, next_free_id) << "overlaps the slab before";
    next_free_id = blocks.end;
    ASSERT_GE(blocks.first * format.page_bytes, view * share);
    ASSERT_LE(blocks.end * format.page_bytes, (view + 1) * share);
    // One more block on either side would extend beyond the share.
    ASSERT_LT(blocks.first * format.page_bytes,
              view * share + format.page_bytes);
    ASSERT_GT((blocks.end + 1) * format.page_bytes, (view + 1) * share);
    if (view == 0) continue;
    usable += blocks.size();
    least = std::min(least, blocks.size());
    most = std::max(most, blocks.size());
  }
  ASSERT_LE(next_free_id, layout.ViewBlocks());
  ASSERT_GE(least, layout.LeastBlocks());
  ASSERT_LE(most, share / format.page_bytes);
  // The mean is exact over a period of boundaries, and nearly exact over any
  // pool.
  EXPECT_NEAR(static_cast<double>(usable) / pool.slab_count,
              layout.MeanBlocks(), 1.0);
  const double used = layout.MeanBlocks() *
                      static_cast<double>(format.block_bytes()) /
                      static_cast<double>(pool.slab_bytes());
  EXPECT_NEAR(used + layout.Waste(), 1, 1e-9);
}

TEST(SlabLayoutProperty, UsableBlocksNeverOverlapAndLieInTheirSlab) {
  for (const Shape& shape : Shapes()) {
    for (const uint32_t granules : {shape.planes, shape.planes * 3 + 1, 196u}) {
      if (granules < shape.planes) continue;
      CheckEveryBlock({2 * kMiB, granules, 200},
                      {shape.planes, shape.page_bytes, 16});
    }
  }
}

TEST(SlabLayoutProperty, RandomFormatsInRandomSlabs) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 500; ++i) {
    const Format format{static_cast<uint32_t>(1 + random() % 200),
                        256 * (1 + random() % 2000), 16};
    const PoolGeometry pool{
        2 * kMiB * (1 + random() % 8),
        format.planes + static_cast<uint32_t>(random() % 300),
        static_cast<uint32_t>(1 + random() % 400)};
    CheckEveryBlock(pool, format);
  }
}

TEST(SlabLayoutProperty, TheMeanIsExactOverAPeriod) {
  // gcd(2 MiB, 33,792) = 1,024: the pattern repeats after 33 shares.
  const SlabLayout layout = Make({2 * kMiB, 1, 33}, {1, 33792, 16});
  uint64_t usable = 0;
  for (uint64_t view = 1; view <= 33; ++view)
    usable += layout.Blocks(view).size();
  EXPECT_DOUBLE_EQ(static_cast<double>(usable) / 33, layout.MeanBlocks());
}

}  // namespace
}  // namespace fineserve::slab
