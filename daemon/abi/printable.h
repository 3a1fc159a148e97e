#ifndef DAEMON_ABI_PRINTABLE_H_
#define DAEMON_ABI_PRINTABLE_H_

#include <cstddef>
#include <cstring>
#include <string>

namespace fineserve::abi {

// A peer's text as it may go to a terminal or a log: up to the first NUL or
// `capacity`, everything but printable ASCII replaced by '?', so that no
// escape sequence and no line break of theirs gets through.
inline std::string Printable(const char* text, size_t capacity) {
  std::string out(text, strnlen(text, capacity));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return out;
}

template <size_t N>
std::string Printable(const char (&text)[N]) {
  return Printable(text, N);
}

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_PRINTABLE_H_
