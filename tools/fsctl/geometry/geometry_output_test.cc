#include "tools/fsctl/geometry/geometry_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fineserve::fsctl {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class GeometryOutputTest : public testing::Test {
 protected:
  GeometryOutputTest() {
    request_.pool_bytes = 16384 * kMiB;
    request_.granularity = 2 * kMiB;
    for (const NamedFormat& f : formats_) request_.formats.push_back(f.format);
  }

  std::vector<NamedFormat> formats_ = {{"a", {32, 65536, 16}},
                                       {"b", {36, 32768, 16}}};
  slab::SearchRequest request_;
};

TEST_F(GeometryOutputTest, TheCheapestIsMarkedAndTheExactSlabNamed) {
  const auto frontier = slab::GeometryFrontier(request_);
  ASSERT_TRUE(frontier.ok());
  const std::string text =
      FrontierText(request_, formats_, *frontier, false, false);
  EXPECT_NE(text.find("least common multiple of 32, 36 planes"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n* "), std::string::npos) << text;
  const auto json =
      nlohmann::json::parse(FrontierJson(request_, formats_, *frontier));
  EXPECT_EQ(json["exact_granules"], 288);
  EXPECT_EQ(json["frontier"].size(), frontier->size());
  EXPECT_EQ(json["chosen"]["slab_bytes"],
            Cheapest(*frontier).geometry.slab_bytes());
  EXPECT_EQ(json["fit"]["formats"].size(), 2);
}

TEST_F(GeometryOutputTest, AJoiningFormatIsExactPaddedOrRefused) {
  const slab::PoolGeometry pool{2 * kMiB, 36, 100};
  formats_.push_back({"deep", {160, 65536, 16}});
  int refused = 0;
  const auto json =
      nlohmann::json::parse(FitJson(pool, formats_, &refused))["formats"];
  EXPECT_EQ(json[0]["fits"], "padded");  // 4 of 36 granules are left over
  EXPECT_DOUBLE_EQ(json[0]["tail_waste"], 4.0 / 36);
  EXPECT_EQ(json[1]["fits"], "exact");
  EXPECT_EQ(json[1]["view_blocks"], 101 * 64);
  EXPECT_EQ(json[2]["fits"], "refused");
  EXPECT_EQ(refused, 1);
  refused = 0;
  const std::string text = FitText(pool, formats_, false, &refused);
  EXPECT_EQ(refused, 1);
  EXPECT_NE(text.find("use slabs of 320 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("2 MiB at 0.74 of its bandwidth"), std::string::npos);
  const slab::PoolGeometry coarse{16 * kMiB, 36, 100};
  EXPECT_EQ(FitText(coarse, formats_, false, &refused).find("bandwidth"),
            std::string::npos);
}

}  // namespace
}  // namespace fineserve::fsctl
