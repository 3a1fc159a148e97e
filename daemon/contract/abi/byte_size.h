#ifndef DAEMON_CONTRACT_ABI_BYTE_SIZE_H_
#define DAEMON_CONTRACT_ABI_BYTE_SIZE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace fineserve::abi {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// Large enough for any text that FormatByteSize writes.
inline constexpr size_t kByteSizeText = 32;

// Parses a size as users write it in environment variables, configuration and
// flags: digits with an optional unit "B", "KiB", "MiB", "GiB", "TiB" or its
// first letter ("512M" is 512 MiB). For any other text, an empty text or an
// overflow, returns false and leaves `bytes` unchanged. libc only; any thread.
bool ParseByteSize(const char* text, uint64_t* bytes);

// Writes "512 MiB", "1.5 GiB" or "4711 B": in the largest unit that is not
// larger than the size, with one decimal unless the size is a multiple of the
// unit.
void FormatByteSize(uint64_t bytes, char (&out)[kByteSizeText]);

inline std::string SizeText(uint64_t bytes) {
  char text[kByteSizeText];
  FormatByteSize(bytes, text);
  return text;
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_BYTE_SIZE_H_
