#include "daemon/pool/geometry/geometry_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/pool/geometry/slab_layout.h"

namespace fineserve::slab {
namespace {

using abi::kGiB;
using abi::kMiB;

Format Planes(uint32_t planes, uint64_t page_bytes = 64 << 10) {
  return {planes, page_bytes, 16};
}

std::vector<GeometryChoice> Frontier(uint64_t pool,
                                     std::vector<Format> formats) {
  const auto frontier =
      GeometryFrontier({pool, 2 * kMiB, std::move(formats), 0, kMaxHandles});
  EXPECT_TRUE(frontier.ok()) << frontier.status();
  return *frontier;
}

// Returns the first choice of the frontier that wastes at most `waste`.
const GeometryChoice* Within(const std::vector<GeometryChoice>& frontier,
                             double waste) {
  const auto found =
      std::find_if(frontier.begin(), frontier.end(),
                   [=](const auto& choice) { return choice.waste <= waste; });
  return found == frontier.end() ? nullptr : &*found;
}

TEST(GeometrySearchTest, ALeastCommonMultipleThatExplodesIsPadded) {
  // Design note 0008: 32, 36 and 28 layers, granules of 2 MiB.
  const std::vector<Format> formats = {Planes(32), Planes(36), Planes(28)};
  EXPECT_EQ(ExactGranules(formats) * 2 * kMiB, 4032 * kMiB);
  const auto frontier = Frontier(16 * kGiB, formats);
  EXPECT_EQ(Within(frontier, 0.10)->geometry.slab_bytes(), 392 * kMiB);
  EXPECT_EQ(Within(frontier, 0.03)->geometry.slab_bytes(), 512 * kMiB);
}

TEST(GeometrySearchTest, OnePlaneIsExactInTheDriversGranularity) {
  const auto frontier = Frontier(16 * kGiB, {Planes(1, 2 * kMiB)});
  EXPECT_EQ(frontier.size(), 1);
  EXPECT_EQ(frontier[0].geometry.slab_bytes(), 2 * kMiB);
  EXPECT_TRUE(frontier[0].exact());
}

TEST(GeometrySearchTest, FormatsOfOneDepthAndTwoPrecisionsAreExact) {
  const auto frontier =
      Frontier(16 * kGiB, {Planes(32, 65536), Planes(32, 32768)});
  EXPECT_EQ(frontier.front().geometry.slab_bytes(), 64 * kMiB);
  EXPECT_TRUE(frontier.front().exact());
}

TEST(GeometrySearchTest, HandlesStayUnderTheLimitInALargePool) {
  for (const uint64_t gib : {16, 64, 120, 180}) {
    for (const GeometryChoice& choice :
         Frontier(gib * kGiB, {Planes(64), Planes(36, 32768)})) {
      EXPECT_LE(choice.geometry.granule_count(), kMaxHandles);
      EXPECT_GE(choice.geometry.slab_count, kLeastSlabs);
    }
  }
}

TEST(GeometrySearchTest, TheFrontierTradesSlabSizeForWaste) {
  const auto frontier =
      Frontier(64 * kGiB, {Planes(32), Planes(36), Planes(56)});
  ASSERT_GT(frontier.size(), 2);
  for (size_t i = 1; i < frontier.size(); ++i) {
    EXPECT_GT(frontier[i].geometry.slab_bytes(),
              frontier[i - 1].geometry.slab_bytes());
    EXPECT_LT(frontier[i].waste, frontier[i - 1].waste);
  }
}

TEST(GeometrySearchTest, WasteIsThatOfTheWorstFormatsLayout) {
  const std::vector<Format> formats = {Planes(32), Planes(36, 33792)};
  for (const GeometryChoice& choice : Frontier(32 * kGiB, formats)) {
    double worst = 0;
    for (const Format& format : formats) {
      worst =
          std::max(worst, SlabLayout::Create(choice.geometry, format)->Waste());
    }
    EXPECT_DOUBLE_EQ(choice.waste, worst);
  }
}

TEST(GeometrySearchTest, TheCheapestBalancesWasteAgainstSlabsInPartUse) {
  const std::vector<Format> formats = {Planes(32), Planes(36), Planes(28)};
  const auto few = Frontier(64 * kGiB, formats);
  auto many = GeometryFrontier({64 * kGiB, 2 * kMiB, formats, 40, kMaxHandles});
  ASSERT_TRUE(many.ok());
  // More engines mean more partly used slabs, so smaller slabs are cheaper.
  EXPECT_LT(Cheapest(*many).geometry.slab_bytes(),
            Cheapest(few).geometry.slab_bytes());
  for (const GeometryChoice& choice : few) {
    EXPECT_LE(Cheapest(few).cost(), choice.cost() + 1e-12);
  }
}

TEST(GeometrySearchTest, APoolThatIsTooSmallIsRefusedWithTheLeastSlab) {
  const auto frontier =
      GeometryFrontier({256 * kMiB, 2 * kMiB, {Planes(64)}, 0, kMaxHandles});
  ASSERT_FALSE(frontier.ok());
  EXPECT_NE(std::string(frontier.status().message()).find("64 planes × 2 MiB"),
            std::string::npos)
      << frontier.status();
}

}  // namespace
}  // namespace fineserve::slab
