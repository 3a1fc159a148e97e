#ifndef TOOLS_FSCTL_TERMINAL_TERMINAL_SCREEN_H_
#define TOOLS_FSCTL_TERMINAL_TERMINAL_SCREEN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {

// The whole terminal on stdin and stdout, through ncurses: keys arrive without
// Enter and without echo, and lines are drawn in place. The destructor restores
// the terminal. Confined to one thread; one at a time. Move-only.
class TerminalScreen {
 public:
  // Returns FailedPrecondition, with the fix, if stdin or stdout is not a
  // terminal, or is of a kind that this machine does not know.
  static absl::StatusOr<TerminalScreen> Open(bool color);

  ScreenSize size() const;

  // Shows as many of the lines, and as much of each, as fits.
  void Paint(const std::vector<Line>& lines);

  // Adapts to the terminal's new size (after SIGWINCH).
  void Resize();

  // Returns the next key that was pressed; 0 if there is none. Does not wait.
  char Key();

 private:
  // Owns ncurses' screen; ending it restores the terminal.
  struct Screen;
  struct End {
    void operator()(Screen* screen) const;
  };

  explicit TerminalScreen(Screen* screen) : screen_(screen) {}

  std::unique_ptr<Screen, End> screen_;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_TERMINAL_SCREEN_H_
