#include "daemon/pool/geometry/pool_geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/contract/abi/byte_size.h"

namespace fineserve::slab {
namespace {

using ::testing::HasSubstr;

using abi::kGiB;
using abi::kMiB;

struct PoolGeometryCase {
  const char* name;
  uint64_t pool_bytes;
  uint32_t planes;
  uint64_t slab_bytes;
  uint64_t want_granule;
  uint32_t want_slabs;
};

void PrintTo(const PoolGeometryCase& c, std::ostream* out) { *out << c.name; }

class ChooseGeometryTest : public ::testing::TestWithParam<PoolGeometryCase> {};

TEST_P(ChooseGeometryTest, CutsThePool) {
  const PoolGeometryCase& c = GetParam();
  const auto g = ChooseGeometry(
      {c.pool_bytes, c.planes, c.slab_bytes, 2 * kMiB, kMaxHandles});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->granule_bytes, c.want_granule);
  EXPECT_EQ(g->granules_per_slab, c.planes);
  EXPECT_EQ(g->slab_count, c.want_slabs);
  EXPECT_LE(g->granule_count(), kMaxHandles);
  EXPECT_LE(g->pool_bytes(), c.pool_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Pools, ChooseGeometryTest,
    ::testing::Values(
        PoolGeometryCase{"OnePlane16GiB", 16 * kGiB, 1, 0, 32 * kMiB, 512},
        PoolGeometryCase{"OnePlane64GiB", 64 * kGiB, 1, 0, 32 * kMiB, 2048},
        PoolGeometryCase{"OnePlaneHuge", 1024 * kGiB, 1, 0, 128 * kMiB, 8192},
        PoolGeometryCase{"Planes64Pool16GiB", 16 * kGiB, 64, 0, 2 * kMiB, 128},
        PoolGeometryCase{"Planes64Pool64GiB", 64 * kGiB, 64, 0, 8 * kMiB, 128},
        PoolGeometryCase{"Planes160Pool16GiB", 16 * kGiB, 160, 0, 2 * kMiB, 51},
        PoolGeometryCase{"Planes160Pool64GiB", 64 * kGiB, 160, 0, 8 * kMiB, 51},
        PoolGeometryCase{"ExplicitSlab", 1 * kGiB, 4, 64 * kMiB, 16 * kMiB, 16},
        PoolGeometryCase{"TailIsDropped", 100 * kMiB, 1, 32 * kMiB, 32 * kMiB,
                         3}),
    [](const auto& param) { return param.param.name; });

TEST(ChooseGeometryTest, FlooringToWholeSlabsIsUsedToKeepGranulesSmall) {
  // 16 GiB + 62 MiB at 64 planes: 2 MiB granules would need 8,223 handles if
  // the tail counted, but whole slabs need 8,192.
  const auto g =
      ChooseGeometry({16 * kGiB + 62 * kMiB, 64, 0, 2 * kMiB, kMaxHandles});
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(g->granule_bytes, 2 * kMiB);
}

TEST(ChooseGeometryTest, SlabThatPlanesDoNotDivideIsRefusedNamingTheNext) {
  const auto g = ChooseGeometry({kGiB, 3, 32 * kMiB, 2 * kMiB, kMaxHandles});
  EXPECT_EQ(g.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(g.status().message()), HasSubstr("use 36 MiB"));
}

TEST(ChooseGeometryTest, PoolSmallerThanASlabIsRefusedNamingTheLeast) {
  const auto g = ChooseGeometry({8 * kMiB, 1, 0, 2 * kMiB, kMaxHandles});
  EXPECT_THAT(std::string(g.status().message()),
              HasSubstr("the smallest slab is 32 MiB"));
}

TEST(ChooseGeometryTest, TooManyHandlesAreRefusedNamingASlabThatFits) {
  const auto g =
      ChooseGeometry({64 * kGiB, 1, 2 * kMiB, 2 * kMiB, kMaxHandles});
  EXPECT_THAT(std::string(g.status().message()), HasSubstr("32768 handles"));
  EXPECT_THAT(std::string(g.status().message()), HasSubstr("use slabs of"));
}

}  // namespace
}  // namespace fineserve::slab
