#include "tools/fsctl/limit/limit_amount.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/contract/abi/byte_size.h"
#include "kernels/driver/rounding.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/suggestion.h"

namespace fineserve::fsctl {
namespace {

using Kind = LimitAmount::Kind;

constexpr uint64_t kWhole = 10'000;  // hundredths of a percent

// In units of 1 / kWhole slabs for a percentage, of 1 / slab_bytes for bytes.
uint64_t PartsOf(const LimitAmount& a, const abi::TableSnapshot& table) {
  return a.kind == Kind::kPercent ? a.amount * table.wanted_slabs : a.amount;
}
uint64_t PartsOfASlab(const LimitAmount& a, const abi::TableSnapshot& table) {
  return a.kind == Kind::kPercent ? kWhole : table.slab_bytes();
}

absl::StatusOr<LimitAmount> ParsePercent(const std::string& text) {
  double percent = 0;
  const std::string number = text.substr(0, text.size() - 1);
  if (!absl::SimpleAtod(number, &percent) || !(percent > 0) || percent > 100) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, ": give more than 0% and at most 100% of the pool"));
  }
  const auto hundredths = static_cast<uint64_t>(std::llround(percent * 100));
  return LimitAmount{Kind::kPercent, hundredths};
}

// "24MiB", as it may be typed.
std::string TypedSize(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(units) && bytes % 1024 == 0; ++unit) {
    bytes /= 1024;
  }
  return absl::StrCat(bytes, units[unit]);
}

}  // namespace

absl::StatusOr<LimitAmount> ParseLimitAmount(const std::string& text) {
  if (text == "none") return LimitAmount{};
  if (absl::EndsWith(text, "%")) return ParsePercent(text);
  LimitAmount amount{Kind::kBytes};
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, ": of what? Give ", text, "% or ", text, "GiB"));
  }
  if (abi::ParseByteSize(text.c_str(), &amount.amount)) return amount;
  return absl::InvalidArgumentError(
      absl::StrCat("not an amount: '", text, "'", DidYouMean(text, {"none"}),
                   "; give a part of the pool (30%), a size (8GiB) or none"));
}

absl::StatusOr<uint32_t> SlabsOf(const LimitAmount& amount,
                                 const abi::TableSnapshot& table) {
  if (amount.kind == Kind::kNone) return 0;
  const uint64_t slabs = PartsOf(amount, table) / PartsOfASlab(amount, table);
  if (slabs == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("that is less than one slab of ", Size(table.slab_bytes()),
                     "; the least limit is ", LeastAmount(1, table)));
  }
  return static_cast<uint32_t>(std::min<uint64_t>(slabs, table.slabs.size()));
}

std::string UnroundedSlabs(const LimitAmount& amount,
                           const abi::TableSnapshot& table) {
  const uint64_t parts = PartsOf(amount, table);
  const uint64_t slab = PartsOfASlab(amount, table);
  if (amount.kind == Kind::kNone || parts % slab == 0) return "";
  // Never up to a whole number, which would look as if nothing was rounded.
  const double slabs = static_cast<double>(parts) / static_cast<double>(slab);
  return absl::StrFormat("%g", std::floor(slabs * 100) / 100);
}

std::string LeastAmount(uint32_t slabs, const abi::TableSnapshot& table) {
  const uint64_t hundredths =
      DivideUp(slabs * kWhole, std::max(table.wanted_slabs, 1u));
  return absl::StrFormat("%s (%g%%)", TypedSize(slabs * table.slab_bytes()),
                         static_cast<double>(hundredths) / 100);
}

}  // namespace fineserve::fsctl
