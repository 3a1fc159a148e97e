#include "tests/integration/top/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

#include "tools/lab/process/eventually.h"

namespace fineserve::integration {
namespace {

driver::Descriptor OpenTerminal() {
  driver::Descriptor ours(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (grantpt(ours.get()) != 0 || unlockpt(ours.get()) != 0) abort();
  return ours;
}

driver::Descriptor OpenOtherEnd(const driver::Descriptor& ours) {
  char name[64];
  if (ptsname_r(ours.get(), name, sizeof(name)) != 0) abort();
  return driver::Descriptor(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
}

bool SameModes(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag &&
         a.c_cflag == b.c_cflag && a.c_lflag == b.c_lflag &&
         memcmp(a.c_cc, b.c_cc, sizeof(a.c_cc)) == 0;
}

}  // namespace

bool Terminal::IsAvailable() {
  const driver::Descriptor ours(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  return ours.valid() && grantpt(ours.get()) == 0;
}

Terminal::Terminal(const std::vector<std::string>& command,
                   const process::Environment& environment, int rows,
                   int columns)
    : ours_(OpenTerminal()),
      programs_(OpenOtherEnd(ours_)),
      child_(Start(command, environment, rows, columns)) {}

process::ChildProcess Terminal::Start(const std::vector<std::string>& command,
                                      const process::Environment& environment,
                                      int rows, int columns) {
  tcgetattr(programs_.get(), &before_);
  Resize(rows, columns);
  const int fd = programs_.get();
  return process::ChildProcess(process::Command{.words = command,
                                                .environment = environment,
                                                .in = fd,
                                                .out = fd,
                                                .err = fd,
                                                .own_terminal = true});
}

bool Terminal::Fill() {
  pollfd ready = {ours_.get(), POLLIN, 0};
  if (poll(&ready, 1, 100) <= 0) return false;
  char chunk[4096];
  const ssize_t n = read(ours_.get(), chunk, sizeof(chunk));
  if (n <= 0) return false;
  written_.append(chunk, static_cast<size_t>(n));
  return true;
}

bool Terminal::Shows(const std::string& text) {
  size_t at = std::string::npos;
  const bool there = process::Eventually([&] {
    at = written_.find(text);
    return at != std::string::npos || (Fill(), false);
  });
  if (!there) {
    ADD_FAILURE() << "\"" << text << "\" does not show in: " << written_;
    return false;
  }
  written_.erase(0, at + text.size());
  return true;
}

void Terminal::Type(const std::string& keys) {
  EXPECT_EQ(write(ours_.get(), keys.data(), keys.size()),
            static_cast<ssize_t>(keys.size()));
}

void Terminal::Resize(int rows, int columns) {
  winsize size = {};
  size.ws_row = static_cast<unsigned short>(rows);     // NOLINT: its type
  size.ws_col = static_cast<unsigned short>(columns);  // NOLINT: its type
  EXPECT_EQ(ioctl(ours_.get(), TIOCSWINSZ, &size), 0);
}

int Terminal::Wait() {
  const bool ended = process::Eventually([&] {
    if (ours_.valid()) Fill();  // else it may wait for room to write
    return !child_.alive();
  });
  if (!ended) {
    ADD_FAILURE() << "pid " << child_.pid() << " does not end";
    Signal(SIGKILL);
  }
  return child_.Wait();
}

std::string Terminal::Rest() {
  while (Fill()) {
  }
  return std::exchange(written_, "");
}

bool Terminal::IsRestored() const {
  termios now = {};
  return tcgetattr(programs_.get(), &now) == 0 && SameModes(before_, now);
}

}  // namespace fineserve::integration
