#ifndef DAEMON_CONTRACT_ABI_PRINTABLE_H_
#define DAEMON_CONTRACT_ABI_PRINTABLE_H_

#include <cstddef>
#include <cstring>
#include <string>

namespace fineserve::abi {

// Makes a peer's text safe for a terminal or a log: ends it at the first NUL or
// at `capacity`, and replaces everything but printable ASCII by '?', so that no
// escape sequence or line break gets through.
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

#endif  // DAEMON_CONTRACT_ABI_PRINTABLE_H_
