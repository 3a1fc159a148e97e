#include "daemon/base/http/random_hex.h"

#include <stdlib.h>
#include <sys/random.h>

#include "absl/strings/escaping.h"

namespace fineserve::proxy {

std::string RandomHex::Next(size_t bytes) {
  if (used_ + bytes > random_.size()) {
    // Once the system is up, a request for up to 256 bytes is never interrupted
    // and gives all of them (getrandom(2)).
    for (size_t i = 0; i < random_.size(); i += 256) {
      if (getrandom(random_.data() + i, 256, 0) != 256) abort();
    }
    used_ = 0;
  }
  const auto* first = reinterpret_cast<const char*>(random_.data() + used_);
  used_ += bytes;
  return absl::BytesToHexString({first, bytes});
}

}  // namespace fineserve::proxy
