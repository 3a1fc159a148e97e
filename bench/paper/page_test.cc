#include "bench/paper/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/lab/svg/svg_plot.h"

namespace fineserve::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

Figure AFigure() {
  Figure f;
  f.id = "x1";
  f.title = "A & B <script>";
  f.question = "Is 1 < 2?";
  f.because = "nothing binds";
  f.provenance = {"data: \"theirs\""};
  f.panels = {{"p", "x", "y", {1, 2}, {}, {{"s", {{3, 0.5}, {4, 0.5}}}}}};
  Comparison c;
  c.what = "ours over theirs";
  c.paper = 2.2;
  c.ours = {1.1, 0.05};
  f.comparisons = {c};
  return f;
}

TEST(PageTest, TextIsEscapedEverywhere) {
  EXPECT_EQ(EscapeMarkup("<a href=\"x\">&'"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  const std::string page = Page({AFigure()}, {Ours()}, {{"<n>", "&r"}}, "<c>");
  EXPECT_THAT(page, HasSubstr("A &amp; B &lt;script&gt;"));
  EXPECT_THAT(page, HasSubstr("&lt;n&gt;"));
  EXPECT_THAT(page, HasSubstr("&lt;c&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(PageTest, NumbersStandBesideThePapersWithTheirVerdictAndReason) {
  const std::string page = Page({AFigure()}, {}, {}, "c");
  EXPECT_THAT(page, HasSubstr("<td>2.2</td><td>1.1 ± 0.05</td><td>0.50</td>"
                              "<td>direction only</td>"));
  EXPECT_THAT(page, HasSubstr("because nothing binds"));
}

TEST(PageTest, ReproducedFigureNeedsNoReason) {
  Figure f = AFigure();
  f.comparisons[0].ours = {2.3, 0.05};
  const std::string page = Page({f}, {}, {}, "c");
  EXPECT_THAT(page, HasSubstr("<b>reproduced</b>"));
  EXPECT_THAT(page, Not(HasSubstr("because")));
}

TEST(PageTest, NothingIsFetched) {
  const std::string page = Page({AFigure()}, {Ours()}, {}, "c");
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
}

TEST(PageTest, IntervalsAreDrawn) {
  Panel panel = AFigure().panels[0];
  const std::string with = Draw(panel);
  panel.curves[0].y[1].half = 0.0;
  EXPECT_NE(Draw(panel), with);
  EXPECT_THAT(with, HasSubstr("<polyline"));
}

TEST(PageTest, PanelWithNothingAboveZeroIsStillDrawn) {
  Panel panel = AFigure().panels[0];
  panel.curves[0].y = {{0, 0}, {0, 0}};
  EXPECT_THAT(Draw(panel), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace fineserve::bench
