#ifndef TOOLS_FSCTL_TERMINAL_TERMINAL_SCREEN_H_
#define TOOLS_FSCTL_TERMINAL_TERMINAL_SCREEN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {

// The whole terminal on stdin and stdout, by ncurses: keys without Enter and
// echo, lines painted in place. As it was before when the object dies.
// Confined to one thread; one at a time. Move-only.
class TerminalScreen {
 public:
  // FailedPrecondition, with the fix, if stdin or stdout is no terminal or one
  // that this machine knows nothing of.
  static absl::StatusOr<TerminalScreen> Open(bool color);

  // What of the lines fits.
  void Paint(const std::vector<Line>& lines);

  // Learns the terminal's size anew (after SIGWINCH).
  void Resize();

  // The next key that was pressed, or 0. Does not wait.
  char Key();

 private:
  // Owns ncurses' screen: ends it, which restores the terminal.
  struct Screen;
  struct End {
    void operator()(Screen* screen) const;
  };

  explicit TerminalScreen(Screen* screen) : screen_(screen) {}

  std::unique_ptr<Screen, End> screen_;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_TERMINAL_SCREEN_H_
