#include "tools/fsctl/terminal/text_table.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {
namespace {

// In the order of Color.
constexpr const char* kEscapes[] = {"",         "\x1b[1m",  "\x1b[2m",
                                    "\x1b[32m", "\x1b[33m", "\x1b[31m"};

// Blanks between columns.
constexpr size_t kGap = 2;

// False for a continuation byte of UTF-8.
bool BeginsCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

// Returns the number of bytes in the first `columns` characters.
size_t BytesOf(absl::string_view text, size_t columns) {
  size_t i = 0;
  for (; i < text.size(); ++i) {
    if (!BeginsCharacter(text[i])) continue;
    if (columns == 0) break;
    --columns;
  }
  return i;
}

void CutLine(size_t columns, Line* line) {
  for (Span& span : *line) {
    span.text.resize(BytesOf(span.text, columns));
    columns -= Width(span.text);
  }
}

}  // namespace

bool UseColor(const std::string& mode, bool is_terminal) {
  if (mode == "always") return true;
  if (mode == "never" || !is_terminal) return false;
  const char* no_color = getenv("NO_COLOR");
  const char* terminal = getenv("TERM");
  return (no_color == nullptr || no_color[0] == '\0') &&
         (terminal == nullptr || strcmp(terminal, "dumb") != 0);
}

std::string Paint(bool on, Color color, const std::string& text) {
  if (!on || color == Color::kNone) return text;
  return absl::StrCat(kEscapes[static_cast<size_t>(color)], text, "\x1b[0m");
}

size_t Width(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), BeginsCharacter));
}

std::string Render(const std::vector<Line>& lines, bool color) {
  std::string out;
  for (const Line& line : lines) {
    for (const Span& span : line) out += Paint(color, span.color, span.text);
    out += '\n';
  }
  return out;
}

std::vector<Line> Fit(const std::vector<Line>& lines, size_t rows,
                      size_t columns) {
  std::vector<Line> shown = lines;
  if (lines.size() > rows) shown.resize(rows);
  if (rows > 0 && lines.size() > rows) {
    shown.back() = {
        {absl::StrCat("... ", lines.size() - rows + 1, " more"), Color::kDim}};
  }
  for (Line& line : shown) CutLine(columns, &line);
  return shown;
}

TextTable::TextTable(const std::vector<std::string>& columns) {
  std::vector<Cell> heading;
  for (const std::string& column : columns) {
    right_.push_back(column[0] == '>');
    heading.emplace_back(right_.back() ? column.substr(1) : column,
                         Color::kBold);
  }
  rows_.push_back(std::move(heading));
}

std::vector<size_t> TextTable::Widths() const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i].text));
    }
  }
  return widths;
}

std::vector<Line> TextTable::Lines() const {
  return LinesOf(Shown(right_.size(), true));
}

size_t TextTable::WidthOf(const Shown& shown) const {
  const std::vector<size_t> widths = Widths();
  size_t width = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (shown[i]) width += (width == 0 ? 0 : kGap) + widths[i];
  }
  return width;
}

std::vector<Line> TextTable::LinesWithin(
    size_t width, const std::vector<std::string>& expendable) const {
  Shown shown(right_.size(), true);
  for (const std::string& name : expendable) {
    if (WidthOf(shown) <= width) break;
    for (size_t i = 0; i < shown.size(); ++i) {
      if (rows_[0][i].text == name) shown[i] = false;
    }
  }
  return LinesOf(shown);
}

std::vector<Line> TextTable::LinesOf(const Shown& shown) const {
  const std::vector<size_t> widths = Widths();
  const size_t last = static_cast<size_t>(
      shown.rend() - std::find(shown.rbegin(), shown.rend(), true));
  std::vector<Line> lines;
  for (const auto& row : rows_) {
    Line line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (!shown[i]) continue;
      const std::string pad(widths[i] - Width(row[i].text), ' ');
      line.push_back(absl::StrCat(line.empty() ? "" : std::string(kGap, ' '),
                                  right_[i] ? pad : ""));
      line.push_back(row[i]);
      // Adds no trailing blanks, since they would wrap on narrow terminals.
      if (!right_[i] && i + 1 < std::min(row.size(), last)) line.push_back(pad);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string TextTable::Render(bool color) const {
  return fsctl::Render(Lines(), color);
}

}  // namespace fineserve::fsctl
