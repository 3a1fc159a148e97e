#ifndef DAEMON_ABI_BYTE_SIZE_H_
#define DAEMON_ABI_BYTE_SIZE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace fineserve::abi {

// Room for any size that FormatByteSize writes.
inline constexpr size_t kByteSizeText = 32;

// Parses a size as users write it, in environment variables, configuration and
// flags: digits with an optional unit "B", "KiB", "MiB", "GiB", "TiB" or its
// first letter ("512M" is 512 MiB). Returns false, leaving `bytes` alone, on
// anything else, on overflow, and on an empty text. libc only; any thread.
bool ParseByteSize(const char* text, uint64_t* bytes);

// "512 MiB", "1.5 GiB", "4711 B": the largest unit that is exact to one
// decimal, or else bytes rounded to one decimal of the largest unit.
void FormatByteSize(uint64_t bytes, char (&out)[kByteSizeText]);

inline std::string SizeText(uint64_t bytes) {
  char text[kByteSizeText];
  FormatByteSize(bytes, text);
  return text;
}

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_BYTE_SIZE_H_
