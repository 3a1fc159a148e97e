#include "tools/lab/stage/figures.h"

#include <gtest/gtest.h>

namespace fineserve::stage {
namespace {

TEST(FiguresTest, AFigureIsFoundByItsWholeName) {
  EXPECT_EQ(FigureIn("ok unleased=3 leased=12 free=4", "leased"), 12);
  EXPECT_EQ(FigureIn("free=4", "free"), 4);
}

TEST(FiguresTest, ASampleIsFoundWithAndWithoutItsLabels) {
  const std::string page =
      "# HELP a_total 9\na_total_more 1\na_total{of=\"x y\"} 2.5\nb 3";
  EXPECT_EQ(MetricOf(page, "a_total"), 2.5);
  EXPECT_EQ(MetricOf(page, "a_total{of=\"x y\"}"), 2.5);
  EXPECT_EQ(MetricOf(page, "b"), 3);
  EXPECT_EQ(MetricOf(page, "c"), -1);
}

}  // namespace
}  // namespace fineserve::stage
