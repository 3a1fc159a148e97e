#include "daemon/fleet/config/size_text.h"

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"

namespace fineserve::config {

absl::Status SetByteSize(const std::string& text, uint64_t* bytes) {
  if (!abi::ParseByteSize(text.c_str(), bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bad size \"", text, "\"; write a number and a unit, like 512MiB"));
  }
  return absl::OkStatus();
}

}  // namespace fineserve::config
