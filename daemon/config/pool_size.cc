#include "daemon/config/pool_size.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/config/size_text.h"

namespace fineserve::config {
namespace {

constexpr uint64_t kUsualParts = 3;  // one of them is the reserve

}  // namespace

absl::Status SetPoolSize(const std::string& text, PoolSize* size) {
  PoolSize parsed;
  parsed.is_auto = text == "auto";
  if (!parsed.is_auto) {
    absl::Status s = SetByteSize(text, &parsed.bytes);
    if (!s.ok()) return s;
  }
  *size = parsed;
  return absl::OkStatus();
}

absl::Status SetReserve(const std::string& text, Reserve* reserve) {
  Reserve parsed;
  if (!text.empty() && text.back() == '%') {
    const std::string number = text.substr(0, text.size() - 1);
    if (!absl::SimpleAtoi(number, &parsed.percent) || parsed.percent == 0 ||
        parsed.percent >= 100) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad reserve \"", text, "\"; write 1% to 99%"));
    }
  } else {
    absl::Status s = SetByteSize(text, &parsed.bytes);
    if (!s.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bad reserve \"", text, "\"; write it like 20GiB or 40%"));
    }
    if (parsed.bytes == 0) {
      return absl::InvalidArgumentError(
          "a reserve of nothing leaves no room for weights; write at least "
          "1MiB");
    }
  }
  *reserve = parsed;
  return absl::OkStatus();
}

uint64_t ReserveBytes(const Reserve& reserve, uint64_t free_bytes) {
  if (reserve.bytes != 0) return reserve.bytes;
  return reserve.percent != 0 ? free_bytes / 100 * reserve.percent
                              : free_bytes / kUsualParts;
}

}  // namespace fineserve::config
