#ifndef TOOLS_FSCTL_TERMINAL_TEXT_TABLE_H_
#define TOOLS_FSCTL_TERMINAL_TEXT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace fineserve::fsctl {

enum class Color { kNone, kBold, kDim, kGreen, kYellow, kRed };

// True if output is to be colored: `mode` is auto, always or never; auto means
// a terminal that is not "dumb" and no NO_COLOR (https://no-color.org) in the
// environment.
bool UseColor(const std::string& mode, bool is_terminal);

// Returns `text` in a color; unchanged if `on` is false.
std::string Paint(bool on, Color color, const std::string& text);

// Returns the terminal columns that UTF-8 text takes. Counts one per character,
// since fsctl prints no wide characters.
size_t Width(absl::string_view text);

// A piece of a line in one color.
struct Span {
  Span(std::string t, Color c = Color::kNone)  // NOLINT: converts on purpose
      : text(std::move(t)), color(c) {}
  Span(const char* t) : text(t) {}  // NOLINT: converts on purpose
  std::string text;
  Color color = Color::kNone;
};
using Line = std::vector<Span>;

// Returns the lines as text, each with a newline.
std::string Render(const std::vector<Line>& lines, bool color);

// Size of a terminal. Without a terminal, there is no limit.
struct ScreenSize {
  size_t rows = SIZE_MAX;
  size_t columns = SIZE_MAX;
};

// Cuts lines to the size of a terminal. If not all lines fit, the last row says
// how many are missing.
std::vector<Line> Fit(const std::vector<Line>& lines, size_t rows,
                      size_t columns);

// Rows of cells, printed in aligned columns. Colors take no width.
class TextTable {
 public:
  using Cell = Span;

  // A column whose name begins with '>' is aligned to the right; the '>' is not
  // printed.
  explicit TextTable(const std::vector<std::string>& columns);
  void Add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  std::vector<Line> Lines() const;
  // As Lines, without the columns that must go for the rest to fit into
  // `width`: the first of `expendable` (names without '>'), as many as needed.
  std::vector<Line> LinesWithin(
      size_t width, const std::vector<std::string>& expendable) const;
  std::string Render(bool color) const;

 private:
  using Shown = std::vector<bool>;  // by column

  std::vector<size_t> Widths() const;
  size_t WidthOf(const Shown& shown) const;
  std::vector<Line> LinesOf(const Shown& shown) const;

  std::vector<bool> right_;
  std::vector<std::vector<Cell>> rows_;  // the heading comes first
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_TEXT_TABLE_H_
