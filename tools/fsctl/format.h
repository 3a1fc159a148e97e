#ifndef TOOLS_FSCTL_FORMAT_H_
#define TOOLS_FSCTL_FORMAT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace fineserve::fsctl {

// The two clocks of the moment that a rendering is about: injected, so that
// renderings can be compared in tests.
struct Moment {
  uint64_t monotonic_ns = 0;
  uint64_t realtime_ns = 0;
};
Moment Now();

// "512 MiB".
std::string Size(uint64_t bytes);

// How long ago: "850 ms", "12 s", "3 min", "5 h", "2 d"; "-" if `then` is 0
// (unknown) or in the future, as a peer may claim.
std::string Age(uint64_t now_ns, uint64_t then_ns);

// The same in whole seconds, for JSON; 0 for "-".
uint64_t AgeSeconds(uint64_t now_ns, uint64_t then_ns);

// "83.33 %".
std::string Percent(double fraction, int decimals = 2);

std::string Hex(uint64_t value);
std::string GpuName(const uint8_t (&uuid)[16]);

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

#endif  // TOOLS_FSCTL_FORMAT_H_
