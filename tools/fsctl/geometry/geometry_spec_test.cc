#include "tools/fsctl/geometry/geometry_spec.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::fsctl {
namespace {

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
