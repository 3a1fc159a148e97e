#include "daemon/contract/abi/byte_size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

namespace fineserve::abi {
namespace {

constexpr char kUnits[] = "BKMGT";

// Returns a unit's binary exponent; -1 if it is not a unit.
int ShiftOf(const char* unit) {
  if (*unit == '\0') return 0;
  const char* found =
      strchr(kUnits, toupper(static_cast<unsigned char>(*unit)));
  if (found == nullptr) return -1;
  const char* rest = unit + 1;
  const int index = static_cast<int>(found - kUnits);
  const bool bare = *rest == '\0';
  const bool full = index > 0 && strcasecmp(rest, "iB") == 0;
  return bare || full ? 10 * index : -1;
}

}  // namespace

bool ParseByteSize(const char* text, uint64_t* bytes) {
  if (text == nullptr || !isdigit(static_cast<unsigned char>(*text))) {
    return false;
  }
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = strtoull(text, &end, 10);
  if (errno != 0) return false;
  if (end[0] == ' ' && end[1] != '\0') ++end;
  const int shift = ShiftOf(end);
  if (shift < 0 || number > (UINT64_MAX >> shift)) return false;
  *bytes = static_cast<uint64_t>(number) << shift;
  return true;
}

void FormatByteSize(uint64_t bytes, char (&out)[kByteSizeText]) {
  int unit = 0;
  while (unit < 4 && bytes >> (10 * (unit + 1)) != 0) ++unit;
  const uint64_t one = 1ull << (10 * unit);
  if (bytes % one == 0) {
    snprintf(out, sizeof(out), "%llu %c%s",
             static_cast<unsigned long long>(bytes / one), kUnits[unit],
             unit > 0 ? "iB" : "");
  } else {
    snprintf(out, sizeof(out), "%.1f %ciB",
             static_cast<double>(bytes) / static_cast<double>(one),
             kUnits[unit]);
  }
}

}  // namespace fineserve::abi
