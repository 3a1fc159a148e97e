#include "bench/paper/page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/lab/svg/svg_plot.h"

namespace fineserve::bench {
namespace {

constexpr char kHead[] = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<title>The papers' figures, simulated</title>
<style>
body { font-family: sans-serif; max-width: 60rem; margin: 2rem auto; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border: 1px solid #ccc; padding: 0.2rem 0.6rem; text-align: left; }
.reproduced { background: #d7f0e2; }
.direction { background: #fdf1cf; }
.not { background: #f8dcd0; }
svg { max-width: 100%; height: auto; }
</style></head><body>
<h1>The papers' figures, simulated</h1>
<p>Production scheduler, pool and planner in virtual time on calibrated steps:
compare shapes and ratios, not milliseconds. Intervals are 95 % over seeds;
ratios are taken seed by seed on the same requests. A dropped request misses its
SLO.</p>
)";

const char* ClassOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kReproduced:
      return "reproduced";
    case Verdict::kDirectionOnly:
      return "direction";
    case Verdict::kNot:
      return "not";
  }
  return "";
}

std::string Row(const std::vector<std::string>& cells, const char* tag) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) {
    absl::StrAppend(&out, "<", tag, ">", EscapeMarkup(cell), "</", tag, ">");
  }
  return absl::StrCat(out, "</tr>\n");
}

std::string Shown(const Table& table) {
  std::string out = absl::StrCat("<h3>", EscapeMarkup(table.title),
                                 "</h3>\n<table>\n", Row(table.header, "th"));
  for (const auto& row : table.rows) absl::StrAppend(&out, Row(row, "td"));
  return absl::StrCat(out, "</table>\n");
}

std::string Shown(const std::vector<Comparison>& comparisons) {
  std::string out = absl::StrCat(
      "<table>\n",
      Row({"what", "paper", "here", "here / paper", "verdict"}, "th"));
  for (const Comparison& c : comparisons) {
    const Verdict verdict = c.verdict();
    absl::StrAppend(
        &out, "<tr class=\"", ClassOf(verdict), "\"><td>", EscapeMarkup(c.what),
        "</td><td>", absl::StrFormat("%.4g", c.paper), "</td><td>",
        Text(c.ours), "</td><td>",
        c.paper == 0 ? "-" : absl::StrFormat("%.2f", c.ours.mean / c.paper),
        "</td><td>", Name(verdict), "</td></tr>\n");
  }
  return absl::StrCat(out, "</table>\n");
}

std::string Shown(const Figure& figure) {
  const Verdict verdict = figure.verdict();
  std::string out = absl::StrCat(
      "<h2 id=\"", EscapeMarkup(figure.id), "\">", EscapeMarkup(figure.title),
      "</h2>\n<p>", EscapeMarkup(figure.question), "</p>\n<p class=\"",
      ClassOf(verdict), "\"><b>", Name(verdict), "</b>");
  if (verdict != Verdict::kReproduced) {
    absl::StrAppend(&out, ", because ", EscapeMarkup(figure.because));
  }
  absl::StrAppend(&out, "</p>\n");
  for (const Panel& panel : figure.panels) absl::StrAppend(&out, Draw(panel));
  absl::StrAppend(&out, Shown(figure.comparisons));
  for (const Table& table : figure.tables) absl::StrAppend(&out, Shown(table));
  absl::StrAppend(&out, "<p>Data and choices:</p><ul>\n");
  for (const std::string& line : figure.provenance) {
    absl::StrAppend(&out, "<li>", EscapeMarkup(line), "</li>\n");
  }
  return absl::StrCat(out, "</ul>\n");
}

std::string Contents(const std::vector<Figure>& figures) {
  std::string out = "<ul>\n";
  for (const Figure& f : figures) {
    absl::StrAppend(&out, "<li class=\"", ClassOf(f.verdict()),
                    "\"><a href=\"#", EscapeMarkup(f.id), "\">",
                    EscapeMarkup(f.title), "</a>: ", Name(f.verdict()),
                    "</li>\n");
  }
  return absl::StrCat(out, "</ul>\n");
}

}  // namespace

std::string Draw(const Panel& panel) {
  std::vector<Series> series;
  double top = 0;
  for (const Curve& curve : panel.curves) {
    Series s{curve.name, {}};
    for (const Interval& y : curve.y) {
      s.values.push_back(y.mean);
      s.margins.push_back(y.half);
      top = std::max(top, y.mean);
    }
    series.push_back(std::move(s));
  }
  if (panel.groups.empty()) {
    return LineChart(panel.title, panel.x_label, panel.y_label, panel.x,
                     series);
  }
  return BarChart(panel.title, panel.y_label, panel.groups, series,
                  top > 0 ? 1.05 * top : 1, /*mark=*/0);
}

std::string Page(const std::vector<Figure>& figures,
                 const std::vector<System>& systems,
                 const std::vector<NotShown>& not_shown,
                 const std::string& commit) {
  std::string out = kHead;
  absl::StrAppend(&out, "<p>Commit ", EscapeMarkup(commit), ".</p>\n",
                  Contents(figures));
  for (const Figure& figure : figures) absl::StrAppend(&out, Shown(figure));
  Table served{"How each system is served", {"system", "how"}, {}};
  for (const System& s : systems) {
    served.rows.push_back({s.name, s.Description()});
  }
  Table missing{"Not shown", {"figure", "why"}, {}};
  for (const NotShown& n : not_shown) {
    missing.rows.push_back({n.title, n.reason});
  }
  absl::StrAppend(&out, Shown(served), Shown(missing), "</body></html>\n");
  return out;
}

}  // namespace fineserve::bench
