#include "daemon/proxy/request/request_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace fineserve::proxy {
namespace {

constexpr size_t kMostCharacters = 128;
constexpr size_t kBytes = 16;

bool IsUsable(absl::string_view id) {
  return !id.empty() && id.size() <= kMostCharacters &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return absl::ascii_isgraph(static_cast<unsigned char>(c));
         });
}

}  // namespace

std::string RequestIds::For(absl::string_view given) {
  return IsUsable(given) ? std::string(given) : random_.Next(kBytes);
}

}  // namespace fineserve::proxy
