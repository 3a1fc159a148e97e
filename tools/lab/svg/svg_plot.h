#ifndef TOOLS_LAB_SVG_SVG_PLOT_H_
#define TOOLS_LAB_SVG_SVG_PLOT_H_

#include <string>
#include <utility>
#include <vector>

namespace fineserve::bench {

struct Series {
  std::string name;
  std::vector<double> values;  // one per group, or the y of each x
  // Half the width of each value's interval, drawn as a bar; if it is empty,
  // there are none.
  std::vector<double> margins = {};
};

// Escapes a text for HTML and SVG, also in attributes.
std::string EscapeMarkup(const std::string& text);

// Draws grouped bars from 0 to `top`, and a dashed line at `mark`.
std::string BarChart(const std::string& title, const std::string& y_label,
                     const std::vector<std::string>& groups,
                     const std::vector<Series>& series, double top,
                     double mark);

// Draws lines through (x[i], series.values[i]); both axes begin at 0.
std::string LineChart(const std::string& title, const std::string& x_label,
                      const std::string& y_label, const std::vector<double>& x,
                      const std::vector<Series>& series);

}  // namespace fineserve::bench

#endif  // TOOLS_LAB_SVG_SVG_PLOT_H_
