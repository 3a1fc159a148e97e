#ifndef TOOLS_FSCTL_TERMINAL_TEXT_TABLE_H_
#define TOOLS_FSCTL_TERMINAL_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace fineserve::fsctl {

enum class Color { kNone, kBold, kDim, kGreen, kYellow, kRed };

// Whether to colour: `mode` is auto, always or never; auto means a terminal
// that is not "dumb" and no NO_COLOR (https://no-color.org) in the environment.
bool UseColor(const std::string& mode, bool is_terminal);

// `text` in a colour; unchanged if `on` is false.
std::string Paint(bool on, Color color, const std::string& text);

// Columns of a terminal that UTF-8 text takes, each character one: we print
// none that take two.
size_t Width(absl::string_view text);

// A piece of a line in one colour.
struct Span {
  Span(std::string t, Color c = Color::kNone)  // NOLINT: meant to convert
      : text(std::move(t)), color(c) {}
  Span(const char* t) : text(t) {}  // NOLINT: meant to convert
  std::string text;
  Color color = Color::kNone;
};
using Line = std::vector<Span>;

// Lines as text, each with its end.
std::string Render(const std::vector<Line>& lines, bool color);

// What of the lines a terminal shows that is so large. If the last of them do
// not fit, the lowest row says how many.
std::vector<Line> Fit(const std::vector<Line>& lines, size_t rows,
                      size_t columns);

// Rows of cells, printed in aligned columns. Colours do not count as width.
class TextTable {
 public:
  using Cell = Span;

  // A name that begins with '>' is aligned to the right (without the '>').
  explicit TextTable(const std::vector<std::string>& columns);
  void Add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  std::vector<Line> Lines() const;
  std::string Render(bool color) const;

 private:
  std::vector<size_t> Widths() const;

  std::vector<bool> right_;
  std::vector<std::vector<Cell>> rows_;  // the first is the heading
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_TEXT_TABLE_H_
