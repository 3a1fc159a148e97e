#include "shim/host/warn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

namespace fineserve::shim {

void Warn(const char* format, ...) {
  constexpr char kPrefix[] = "fineserve: ";
  constexpr size_t kPrefixBytes = sizeof(kPrefix) - 1;
  const int saved = errno;
  char line[1024] = "fineserve: ";
  // Leaves room for the newline that replaces the terminator.
  const size_t room = sizeof(line) - kPrefixBytes - 1;
  va_list args;
  va_start(args, format);
  const int wanted = vsnprintf(line + kPrefixBytes, room, format, args);
  va_end(args);
  size_t text = wanted < 0 ? 0 : static_cast<size_t>(wanted);
  if (text >= room) text = room - 1;
  line[kPrefixBytes + text] = '\n';
  // Ignores a failure: a host without a standard error loses the line, and
  // there is no other place for it.
  const ssize_t written = write(STDERR_FILENO, line, kPrefixBytes + text + 1);
  (void)written;
  errno = saved;
}

}  // namespace fineserve::shim
