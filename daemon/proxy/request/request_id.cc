#include "daemon/proxy/request/request_id.h"

#include <stdlib.h>
#include <sys/random.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace fineserve::proxy {
namespace {

constexpr size_t kMostCharacters = 128;

bool IsUsable(absl::string_view id) {
  return !id.empty() && id.size() <= kMostCharacters &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return absl::ascii_isgraph(static_cast<unsigned char>(c));
         });
}

}  // namespace

std::string RequestIds::For(absl::string_view given) {
  return IsUsable(given) ? std::string(given) : Make();
}

std::string RequestIds::Make() {
  if (used_ == random_.size()) {
    // Once the system is up, a request for up to 256 bytes is never interrupted
    // and gives all of them (getrandom(2)).
    for (size_t i = 0; i < random_.size(); i += 256) {
      if (getrandom(random_.data() + i, 256, 0) != 256) abort();
    }
    used_ = 0;
  }
  const auto* bytes = reinterpret_cast<const char*>(random_.data() + used_);
  used_ += kBytes;
  return absl::BytesToHexString({bytes, kBytes});
}

}  // namespace fineserve::proxy
