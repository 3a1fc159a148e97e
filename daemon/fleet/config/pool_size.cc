#include "daemon/fleet/config/pool_size.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/fleet/config/size_text.h"

namespace fineserve::config {
namespace {

constexpr uint64_t kUsualParts = 3;  // one of them is the reserve
constexpr uint64_t kUsualHeadroomParts = 16;

// `what` names the value in the error.
absl::Status SetPart(absl::string_view what, const std::string& text,
                     Reserve* part) {
  Reserve parsed;
  if (!text.empty() && text.back() == '%') {
    const std::string number = text.substr(0, text.size() - 1);
    if (!absl::SimpleAtoi(number, &parsed.percent) || parsed.percent == 0 ||
        parsed.percent >= 100) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad ", what, " \"", text, "\"; write 1% to 99%"));
    }
  } else {
    absl::Status s = SetByteSize(text, &parsed.bytes);
    if (!s.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bad ", what, " \"", text, "\"; write it like 20GiB or 40%"));
    }
    if (parsed.bytes == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a ", what,
                       " of nothing leaves no room for weights; write at least "
                       "1MiB"));
    }
  }
  *part = parsed;
  return absl::OkStatus();
}

uint64_t BytesOf(const Reserve& part, uint64_t of, uint64_t usual_parts) {
  if (part.bytes != 0) return part.bytes;
  return part.percent != 0 ? of / 100 * part.percent : of / usual_parts;
}

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
  return SetPart("reserve", text, reserve);
}

absl::Status SetHeadroom(const std::string& text, Reserve* headroom) {
  return SetPart("headroom", text, headroom);
}

uint64_t ReserveBytes(const Reserve& reserve, uint64_t free_bytes) {
  return BytesOf(reserve, free_bytes, kUsualParts);
}

uint64_t HeadroomBytes(const Reserve& headroom, uint64_t total_bytes) {
  return BytesOf(headroom, total_bytes, kUsualHeadroomParts);
}

}  // namespace fineserve::config
