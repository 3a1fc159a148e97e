#include "tools/fsctl/terminal/terminal_screen.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

// ncurses' macros would take common names such as `clear`.
#define NCURSES_NOMACROS
#include <ncurses.h>

namespace fineserve::fsctl {
namespace {

// One ncurses color pair for each Color that is not an attribute.
enum : short { kGreenPair = 1, kYellowPair, kRedPair };  // NOLINT: its type

void MakePairs() {
  start_color();
  use_default_colors();
  init_pair(kGreenPair, COLOR_GREEN, -1);
  init_pair(kYellowPair, COLOR_YELLOW, -1);
  init_pair(kRedPair, COLOR_RED, -1);
}

attr_t AttributeOf(Color color) {
  switch (color) {
    case Color::kNone:
      return A_NORMAL;
    case Color::kBold:
      return A_BOLD;
    case Color::kDim:
      return A_DIM;
    case Color::kGreen:
      return COLOR_PAIR(kGreenPair);
    case Color::kYellow:
      return COLOR_PAIR(kYellowPair);
    case Color::kRed:
      return COLOR_PAIR(kRedPair);
  }
  return A_NORMAL;
}

// Replaces the only non-ASCII character that fsctl prints by a letter if the
// terminal lacks UTF-8.
std::string Encoded(const std::string& text) {
  static const bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  return utf8 ? text : absl::StrReplaceAll(text, {{"×", "x"}});
}

void PaintLine(int row, const Line& line, bool color) {
  wmove(stdscr, row, 0);
  for (const Span& span : line) {
    wattrset(stdscr,
             static_cast<int>(color ? AttributeOf(span.color) : A_NORMAL));
    waddstr(stdscr, Encoded(span.text).c_str());
  }
}

}  // namespace

struct TerminalScreen::Screen {
  SCREEN* curses;
  bool color;
};

void TerminalScreen::End::operator()(Screen* screen) const {
  endwin();
  delscreen(screen->curses);
  delete screen;
}

absl::StatusOr<TerminalScreen> TerminalScreen::Open(bool color) {
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
    return absl::FailedPreconditionError(
        "stdin or stdout is not a terminal; print one frame with: fsctl top "
        "--once");
  }
  setlocale(LC_CTYPE, "");
  SCREEN* curses = newterm(nullptr, stdout, stdin);
  if (curses == nullptr) {
    const char* name = getenv("TERM");
    return absl::FailedPreconditionError(
        absl::StrCat("this machine does not know the terminal type '",
                     name == nullptr ? "" : name,
                     "' ($TERM); print one frame with: fsctl top --once"));
  }
  TerminalScreen screen(new Screen{curses, color && has_colors()});
  if (screen.screen_->color) MakePairs();
  cbreak();
  noecho();
  nodelay(stdscr, true);
  curs_set(0);  // fails on terminals that cannot hide the cursor
  screen.Resize();
  return screen;
}

ScreenSize TerminalScreen::size() const {
  return {static_cast<size_t>(getmaxy(stdscr)),
          static_cast<size_t>(getmaxx(stdscr))};
}

void TerminalScreen::Paint(const std::vector<Line>& lines) {
  werase(stdscr);
  const ScreenSize fits = size();
  int row = 0;
  for (const Line& line : Fit(lines, fits.rows, fits.columns)) {
    PaintLine(row++, line, screen_->color);
  }
  wrefresh(stdscr);
}

// Reads the size from the terminal: ncurses would use $LINES and $COLUMNS,
// which keep the size at the start.
void TerminalScreen::Resize() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 ||
      size.ws_col == 0) {
    return;
  }
  resizeterm(size.ws_row, size.ws_col);
  // Terminals rearrange their content when they are resized.
  clearok(stdscr, true);
}

char TerminalScreen::Key() {
  for (;;) {
    const int key = wgetch(stdscr);
    if (key == ERR) return 0;
    // Higher codes are ncurses' own, such as KEY_RESIZE.
    if (key > 0 && key < 128) return static_cast<char>(key);
  }
}

}  // namespace fineserve::fsctl
