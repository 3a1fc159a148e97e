#ifndef DAEMON_PROXY_REQUEST_REQUEST_ID_H_
#define DAEMON_PROXY_REQUEST_REQUEST_ID_H_

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// Names of requests, as X-Request-Id carries them. Confined to a thread.
class RequestIds {
 public:
  // The client's own if it is printable and not longer than 128 characters,
  // else a new one of 32 hexadecimal digits.
  std::string For(absl::string_view given);

 private:
  static constexpr size_t kBytes = 16;

  std::string Make();

  // The kernel's random bytes, fetched for 32 ids at a time.
  std::array<unsigned char, 32 * kBytes> random_;
  size_t used_ = random_.size();
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_REQUEST_ID_H_
