#include "tools/fsctl/terminal/quantities.h"

#include <time.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/socket_path.h"

namespace fineserve::fsctl {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMillisecond;

uint64_t Read(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * kSecond +
         static_cast<uint64_t>(t.tv_nsec);
}

bool Known(uint64_t now_ns, uint64_t then_ns) {
  return then_ns != 0 && then_ns <= now_ns;
}

}  // namespace

Moment Now() { return {Read(CLOCK_MONOTONIC), Read(CLOCK_REALTIME)}; }

std::string Size(uint64_t bytes) { return abi::SizeText(bytes); }

std::string Age(uint64_t now_ns, uint64_t then_ns) {
  if (!Known(now_ns, then_ns)) return "-";
  const uint64_t ns = now_ns - then_ns;
  const uint64_t seconds = ns / kSecond;
  if (seconds == 0) return absl::StrCat(ns / kMillisecond, " ms");
  if (seconds < 120) return absl::StrCat(seconds, " s");
  if (seconds < 120 * 60) return absl::StrCat(seconds / 60, " min");
  if (seconds < 48 * 3600) return absl::StrCat(seconds / 3600, " h");
  return absl::StrCat(seconds / 86400, " d");
}

double SecondsSince(uint64_t now_ns, uint64_t then_ns) {
  if (!Known(now_ns, then_ns)) return -1;
  return static_cast<double>(now_ns - then_ns) * 1e-9;
}

uint64_t AgeSeconds(uint64_t now_ns, uint64_t then_ns) {
  return Known(now_ns, then_ns) ? (now_ns - then_ns) / kSecond : 0;
}

std::string Ordinal(uint64_t n) {
  const bool is_teen = n % 100 / 10 == 1;
  const char* const end = is_teen       ? "th"
                          : n % 10 == 1 ? "st"
                          : n % 10 == 2 ? "nd"
                          : n % 10 == 3 ? "rd"
                                        : "th";
  return absl::StrCat(n, end);
}

std::string Percent(double fraction, int decimals) {
  return absl::StrFormat("%.*f %%", decimals, fraction * 100);
}

std::string Hex(uint64_t value) { return absl::StrCat("0x", absl::Hex(value)); }

std::string GpuName(const uint8_t (&uuid)[16]) {
  char text[41];
  abi::FormatGpuUuid(uuid, text);
  return text;
}

}  // namespace fineserve::fsctl
