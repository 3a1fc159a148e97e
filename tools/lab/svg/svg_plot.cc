#include "tools/lab/svg/svg_plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace fineserve::bench {
namespace {

constexpr double kWidth = 860, kHeight = 420;
constexpr double kLeft = 70, kRight = 210, kTop = 40, kBottom = 60;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
// Readers who are colour-blind can distinguish these colours (Okabe and Ito).
const char* const kColors[] = {"#0072b2", "#56b4e9", "#e69f00", "#d55e00",
                               "#009e73", "#cc79a7", "#000000"};
constexpr size_t kColorCount = sizeof(kColors) / sizeof(kColors[0]);

std::string Text(double x, double y, const char* anchor,
                 const std::string& text) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
      anchor, EscapeMarkup(text));
}

double Y(double value, double top) {
  return kTop + kPlotHeight * (1 - std::min(value / top, 1.0));
}

std::string Line(double x1, double y1, double x2, double y2,
                 const char* style) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1,
      x2, y2, style);
}

// Draws the interval of a value as a vertical bar at x.
std::string Margin(double x, const Series& series, size_t i, double top,
                   const char* color) {
  if (i >= series.margins.size() || !std::isfinite(series.margins[i])) {
    return "";
  }
  const double low = std::max(0.0, series.values[i] - series.margins[i]);
  const double high = series.values[i] + series.margins[i];
  return Line(x, Y(low, top), x, Y(high, top),
              absl::StrCat("stroke=\"", color, "\"").c_str());
}

std::string Frame(const std::string& title, const std::string& y_label,
                  double top) {
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
      "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  absl::StrAppend(&out, Text(kLeft, 22, "start", title),
                  Text(kLeft - 60, kTop - 6, "start", y_label));
  for (int i = 0; i <= 4; ++i) {
    const double value = top * i / 4;
    absl::StrAppend(&out,
                    Line(kLeft, Y(value, top), kLeft + kPlotWidth,
                         Y(value, top), "stroke=\"#ddd\""),
                    Text(kLeft - 6, Y(value, top) + 4, "end",
                         absl::StrFormat("%.4g", value)));
  }
  return out;
}

std::string Legend(const std::vector<Series>& series) {
  std::string out;
  for (size_t s = 0; s < series.size(); ++s) {
    const double y = kTop + 18.0 * static_cast<double>(s);
    absl::StrAppend(
        &out,
        absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" "
                        "height=\"12\" fill=\"%s\"/>\n",
                        kWidth - kRight + 16, y, kColors[s % kColorCount]),
        Text(kWidth - kRight + 34, y + 11, "start", series[s].name));
  }
  return out;
}

}  // namespace

std::string EscapeMarkup(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

std::string BarChart(const std::string& title, const std::string& y_label,
                     const std::vector<std::string>& groups,
                     const std::vector<Series>& series, double top,
                     double mark) {
  std::string out = Frame(title, y_label, top);
  const double group = kPlotWidth / static_cast<double>(groups.size());
  const double bar = group * 0.8 / static_cast<double>(series.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const double left = kLeft + group * (static_cast<double>(g) + 0.1);
    for (size_t s = 0; s < series.size(); ++s) {
      const double y = Y(series[s].values[g], top);
      absl::StrAppend(
          &out,
          absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                          "height=\"%.1f\" fill=\"%s\"/>\n",
                          left + bar * static_cast<double>(s), y, bar * 0.92,
                          kTop + kPlotHeight - y, kColors[s % kColorCount]),
          Margin(left + bar * (static_cast<double>(s) + 0.46), series[s], g,
                 top, "black"));
    }
    absl::StrAppend(&out, Text(left + group * 0.4, kHeight - kBottom + 18,
                               "middle", groups[g]));
  }
  absl::StrAppend(&out,
                  Line(kLeft, Y(mark, top), kLeft + kPlotWidth, Y(mark, top),
                       "stroke=\"black\" stroke-dasharray=\"4 4\""),
                  Legend(series), "</svg>\n");
  return out;
}

std::string LineChart(const std::string& title, const std::string& x_label,
                      const std::string& y_label, const std::vector<double>& x,
                      const std::vector<Series>& series) {
  double top = 0;
  for (const Series& s : series) {
    top = std::max(top, *std::max_element(s.values.begin(), s.values.end()));
  }
  if (top <= 0) top = 1;
  std::string out = Frame(title, y_label, top);
  const auto at = [&](double value) {
    return kLeft + kPlotWidth * value / x.back();
  };
  for (size_t s = 0; s < series.size(); ++s) {
    std::string points;
    for (size_t i = 0; i < x.size(); ++i) {
      absl::StrAppend(&points, absl::StrFormat("%.1f,%.1f ", at(x[i]),
                                               Y(series[s].values[i], top)));
      absl::StrAppend(
          &out, Margin(at(x[i]), series[s], i, top, kColors[s % kColorCount]));
    }
    absl::StrAppend(&out,
                    absl::StrFormat("<polyline points=\"%s\" fill=\"none\" "
                                    "stroke=\"%s\" stroke-width=\"2\"/>\n",
                                    points, kColors[s % kColorCount]));
  }
  // There is room for at most a dozen labels.
  for (size_t i = 0; i < x.size(); i += x.size() / 12 + 1) {
    const double value = x[i];
    absl::StrAppend(&out, Text(at(value), kHeight - kBottom + 18, "middle",
                               absl::StrFormat("%.4g", value)));
  }
  absl::StrAppend(&out,
                  Text(kLeft + kPlotWidth / 2, kHeight - 14, "middle", x_label),
                  Legend(series), "</svg>\n");
  return out;
}

}  // namespace fineserve::bench
