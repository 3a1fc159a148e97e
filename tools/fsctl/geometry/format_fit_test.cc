#include "tools/fsctl/geometry/format_fit.h"

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

bool Says(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST(GeometrySpecTest, AModelIsCountedByThePapersFormula) {
  const auto model = ParseModel(
      "qoq:layers=32,kv-heads=8,head-dim=128,precision=int4,quant-bytes=1KiB");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "qoq");
  EXPECT_EQ(model->format, (slab::Format{32, 17408, 16}));
}

TEST(GeometrySpecTest, LayoutTpAndTokensCount) {
  const auto model = ParseModel(
      "layers=80,kv-heads=8,head-dim=128,precision=bf16,tp=2,tokens=32,"
      "layout=split");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->format, (slab::Format{160, 32768, 32}));
}

TEST(GeometrySpecTest, AFormatIsTakenAsItIs) {
  const auto format = ParseFormat("planes=36,page=33792,tokens=8");
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ(format->name, "planes=36,page=33792,tokens=8");
  EXPECT_EQ(format->format, (slab::Format{36, 33792, 8}));
}

TEST(GeometrySpecTest, MistakesAreNamed) {
  EXPECT_TRUE(Says(ParseFormat("plane=3").status(),
                   "unknown key \"plane\"; the keys are page, planes, tokens"));
  EXPECT_TRUE(
      Says(ParseFormat("planes=3").status(), "needs planes= and page="));
  EXPECT_TRUE(Says(ParseFormat("planes=-3,page=1").status(),
                   "\"-3\" is not a value for planes"));
  EXPECT_TRUE(Says(ParseFormat("").status(), "unknown key \"\""));
  EXPECT_TRUE(
      Says(ParseModel("layers=2,kv-heads=8,head-dim=1,precision=fp6").status(),
           "\"fp6\" is not a value for precision"));
  EXPECT_TRUE(Says(ParseModel("x:layers=2").status(), "KV heads is 0"));
}

}  // namespace

}  // namespace fineserve::fsctl
